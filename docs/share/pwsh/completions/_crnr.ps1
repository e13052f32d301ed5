# Completion for crnr, made by docs/share/make.py from its commands.
Register-ArgumentCompleter -Native -CommandName crnr -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)
    $groups = @('model')
    $commands = @{
        '' = @{
            Arguments = 'commands'
            Commands = @('build', 'classify', 'evaluate', 'review', 'sort', 'explain', 'audit', 'info', 'verify', 'add', 'correct', 'remove', 'rename', 'tune', 'compare', 'split', 'extract', 'model', 'export', 'tag')
            Options = @('-h', '--help', '--help-all', '--version', '--install-completion', '--show-completion')
            Values = @{
            }
        }
        'build' = @{
            Arguments = 'file'
            Commands = @()
            Options = @('-o', '--output', '--extractor', '--labels', '--calibrate', '--parts', '--pca', '--neighbors', '--update', '--cache', '--strict', '--allow-skipped', '-j', '--jobs', '--dry-run', '--json', '-q', '--quiet', '-h', '--help', '--help-all', '--restore', '--event-gap', '--size', '--color', '--gray', '--cell', '--bins', '--block-norm', '--dtype', '--power', '--whiten', '--extractor-preset', '--crop', '--filter', '--mean', '--std', '--channels', '--layout', '--extractor-output', '--pool', '--mirror', '--provider', '--method', '--lam', '--mu', '--iterations', '--tol', '--factor', '--index', '--gamma', '--crc-weight', '--c', '--boxes', '--min-confidence', '--category', '--box-root', '--box-unit', '--box-margin', '--path-column', '--label-column', '--root', '--features-key', '--labels-key', '--samples-axis', '-0', '--null', '--max-pixels', '--max-failure-rate', '--verbose', '--dask')
            Values = @{
                '-o' = 'file'
                '--output' = 'file'
                '--labels' = 'file'
                '--cache' = 'file'
                '--boxes' = 'file'
                '--extractor' = 'asked'
                '--parts' = 'nothing'
                '--pca' = 'nothing'
                '--neighbors' = 'nothing'
                '-j' = 'nothing'
                '--jobs' = 'nothing'
                '--event-gap' = 'nothing'
                '--size' = 'nothing'
                '--cell' = 'nothing'
                '--bins' = 'nothing'
                '--power' = 'nothing'
                '--whiten' = 'nothing'
                '--crop' = 'nothing'
                '--mean' = 'nothing'
                '--std' = 'nothing'
                '--extractor-output' = 'nothing'
                '--lam' = 'nothing'
                '--mu' = 'nothing'
                '--iterations' = 'nothing'
                '--tol' = 'nothing'
                '--gamma' = 'nothing'
                '--crc-weight' = 'nothing'
                '--c' = 'nothing'
                '--min-confidence' = 'nothing'
                '--category' = 'nothing'
                '--box-margin' = 'nothing'
                '--path-column' = 'nothing'
                '--label-column' = 'nothing'
                '--features-key' = 'nothing'
                '--labels-key' = 'nothing'
                '--max-pixels' = 'nothing'
                '--max-failure-rate' = 'nothing'
                '--dask' = 'nothing'
                '--block-norm' = @('soft', 'clipped', 'none')
                '--dtype' = @('float32', 'float64')
                '--extractor-preset' = @('efficientnet-lite', 'imagenet', 'imagenet-v2', 'dinov2', 'dinov3', 'clip', 'siglip', 'vit', 'mobileclip', 'raw')
                '--filter' = @('nearest', 'box', 'bilinear', 'hamming', 'bicubic', 'lanczos')
                '--channels' = @('rgb', 'bgr', 'grey')
                '--layout' = @('nchw', 'nhwc')
                '--pool' = @('cls', 'mean', 'none')
                '--provider' = @('auto', 'cuda', 'tensorrt', 'rocm', 'migraphx', 'directml', 'coreml', 'openvino', 'xnnpack', 'cpu')
                '--method' = @('crnr', 'nrc', 'crc', 'nsc', 'src', 'croc', 'procrc', 'nn', 'svm', 'softmax')
                '--factor' = @('auto', 'dense', 'low-rank')
                '--index' = @('exact', 'ivf', 'hnsw')
                '--box-root' = 'folder'
                '--root' = 'folder'
                '--box-unit' = @('relative', 'pixels')
                '--samples-axis' = @('rows', 'columns')
            }
        }
        'classify' = @{
            Arguments = 'file'
            Commands = @()
            Options = @('-g', '--gallery', '-o', '--output', '--format', '--top', '--reject', '--min-probability', '--sets', '--update', '--resume', '--cache', '--strict', '--allow-skipped', '-j', '--jobs', '--json', '-q', '--quiet', '-h', '--help', '--help-all', '--batch-size', '--prune', '--dates', '--event-gap', '--event-by', '--model-path', '--provider', '--taxa', '--boxes', '--min-confidence', '--category', '--box-root', '--box-unit', '--box-margin', '--labels', '--path-column', '--label-column', '--root', '--features-key', '--labels-key', '--samples-axis', '-0', '--null', '--max-pixels', '--max-failure-rate', '--verbose', '--dask')
            Values = @{
                '-g' = 'file'
                '--gallery' = 'file'
                '-o' = 'file'
                '--output' = 'file'
                '--cache' = 'file'
                '--model-path' = 'file'
                '--taxa' = 'file'
                '--boxes' = 'file'
                '--labels' = 'file'
                '--format' = @('csv', 'jsonl', 'parquet')
                '--top' = 'nothing'
                '--reject' = 'nothing'
                '--min-probability' = 'nothing'
                '--sets' = 'nothing'
                '-j' = 'nothing'
                '--jobs' = 'nothing'
                '--batch-size' = 'nothing'
                '--dates' = 'nothing'
                '--event-gap' = 'nothing'
                '--event-by' = 'nothing'
                '--min-confidence' = 'nothing'
                '--category' = 'nothing'
                '--box-margin' = 'nothing'
                '--path-column' = 'nothing'
                '--label-column' = 'nothing'
                '--features-key' = 'nothing'
                '--labels-key' = 'nothing'
                '--max-pixels' = 'nothing'
                '--max-failure-rate' = 'nothing'
                '--dask' = 'nothing'
                '--provider' = @('auto', 'cuda', 'tensorrt', 'rocm', 'migraphx', 'directml', 'coreml', 'openvino', 'xnnpack', 'cpu')
                '--box-root' = 'folder'
                '--root' = 'folder'
                '--box-unit' = @('relative', 'pixels')
                '--samples-axis' = @('rows', 'columns')
            }
        }
        'evaluate' = @{
            Arguments = 'file'
            Commands = @()
            Options = @('-g', '--gallery', '--html', '--errors', '--confusion', '--corrections', '--outsiders', '--min-accuracy', '--min-f1', '--labels', '--reject', '--strict', '--allow-skipped', '-j', '--jobs', '--json', '-q', '--quiet', '-h', '--help', '--help-all', '--images-from', '--target-accuracy', '--event-gap', '--event-by', '--model-path', '--provider', '--min-probability', '--taxa', '--sets', '--min-answer-rate', '--min-rejected', '--boxes', '--min-confidence', '--category', '--box-root', '--box-unit', '--box-margin', '--path-column', '--label-column', '--root', '--features-key', '--labels-key', '--samples-axis', '-0', '--null', '--max-pixels', '--max-failure-rate', '--verbose')
            Values = @{
                '-g' = 'file'
                '--gallery' = 'file'
                '--html' = 'file'
                '--errors' = 'file'
                '--confusion' = 'file'
                '--corrections' = 'file'
                '--labels' = 'file'
                '--model-path' = 'file'
                '--taxa' = 'file'
                '--boxes' = 'file'
                '--outsiders' = 'folder'
                '--images-from' = 'folder'
                '--box-root' = 'folder'
                '--root' = 'folder'
                '--min-accuracy' = 'nothing'
                '--min-f1' = 'nothing'
                '--reject' = 'nothing'
                '-j' = 'nothing'
                '--jobs' = 'nothing'
                '--target-accuracy' = 'nothing'
                '--event-gap' = 'nothing'
                '--event-by' = 'nothing'
                '--min-probability' = 'nothing'
                '--sets' = 'nothing'
                '--min-answer-rate' = 'nothing'
                '--min-rejected' = 'nothing'
                '--min-confidence' = 'nothing'
                '--category' = 'nothing'
                '--box-margin' = 'nothing'
                '--path-column' = 'nothing'
                '--label-column' = 'nothing'
                '--features-key' = 'nothing'
                '--labels-key' = 'nothing'
                '--max-pixels' = 'nothing'
                '--max-failure-rate' = 'nothing'
                '--provider' = @('auto', 'cuda', 'tensorrt', 'rocm', 'migraphx', 'directml', 'coreml', 'openvino', 'xnnpack', 'cpu')
                '--box-unit' = @('relative', 'pixels')
                '--samples-axis' = @('rows', 'columns')
            }
        }
        'review' = @{
            Arguments = 'file'
            Commands = @()
            Options = @('-o', '--output', '-g', '--gallery', '--limit', '--images-from', '--cache', '--json', '-q', '--quiet', '-h', '--help', '--help-all', '--order', '--model-path', '--provider', '--box-margin')
            Values = @{
                '-o' = 'file'
                '--output' = 'file'
                '-g' = 'file'
                '--gallery' = 'file'
                '--cache' = 'file'
                '--model-path' = 'file'
                '--limit' = 'nothing'
                '--box-margin' = 'nothing'
                '--images-from' = 'folder'
                '--order' = @('doubtful', 'diverse')
                '--provider' = @('auto', 'cuda', 'tensorrt', 'rocm', 'migraphx', 'directml', 'coreml', 'openvino', 'xnnpack', 'cpu')
            }
        }
        'sort' = @{
            Arguments = 'file'
            Commands = @()
            Options = @('--how', '--template', '--min-probability', '--below', '--undo', '--portable-names', '--strict', '--allow-skipped', '--dry-run', '--json', '-q', '--quiet', '-h', '--help', '--help-all', '--max-failure-rate', '--verbose')
            Values = @{
                '--how' = @('copy', 'hardlink', 'link', 'move')
                '--template' = 'nothing'
                '--min-probability' = 'nothing'
                '--max-failure-rate' = 'nothing'
                '--below' = 'folder'
                '--undo' = 'file'
            }
        }
        'explain' = @{
            Arguments = 'file'
            Commands = @()
            Options = @('-g', '--gallery', '-o', '--output', '--compare-with', '--images-from', '-j', '--jobs', '--json', '-q', '--quiet', '-h', '--help', '--help-all', '--model-path', '--provider', '--boxes', '--min-confidence', '--category', '--box-root', '--box-unit', '--box-margin', '--labels', '--path-column', '--label-column', '--root', '--features-key', '--labels-key', '--samples-axis', '--max-pixels')
            Values = @{
                '-g' = 'file'
                '--gallery' = 'file'
                '-o' = 'file'
                '--output' = 'file'
                '--model-path' = 'file'
                '--boxes' = 'file'
                '--labels' = 'file'
                '--compare-with' = @('crnr', 'nrc', 'crc', 'nsc', 'src', 'croc', 'procrc', 'nn', 'svm', 'softmax')
                '--images-from' = 'folder'
                '--box-root' = 'folder'
                '--root' = 'folder'
                '-j' = 'nothing'
                '--jobs' = 'nothing'
                '--min-confidence' = 'nothing'
                '--category' = 'nothing'
                '--box-margin' = 'nothing'
                '--path-column' = 'nothing'
                '--label-column' = 'nothing'
                '--features-key' = 'nothing'
                '--labels-key' = 'nothing'
                '--max-pixels' = 'nothing'
                '--provider' = @('auto', 'cuda', 'tensorrt', 'rocm', 'migraphx', 'directml', 'coreml', 'openvino', 'xnnpack', 'cpu')
                '--box-unit' = @('relative', 'pixels')
                '--samples-axis' = @('rows', 'columns')
            }
        }
        'audit' = @{
            Arguments = 'file'
            Commands = @()
            Options = @('--csv', '--html', '--all', '--queries', '--images-from', '--max-suspects', '--extractor', '--labels', '--strict', '--allow-skipped', '-j', '--jobs', '--json', '-q', '--quiet', '-h', '--help', '--help-all', '--event-gap', '--limit', '--size', '--color', '--gray', '--cell', '--bins', '--block-norm', '--dtype', '--power', '--pca', '--whiten', '--parts', '--extractor-preset', '--crop', '--filter', '--mean', '--std', '--channels', '--layout', '--extractor-output', '--pool', '--mirror', '--provider', '--boxes', '--min-confidence', '--category', '--box-root', '--box-unit', '--box-margin', '--path-column', '--label-column', '--root', '--features-key', '--labels-key', '--samples-axis', '-0', '--null', '--max-pixels', '--max-failure-rate', '--verbose')
            Values = @{
                '--csv' = 'file'
                '--html' = 'file'
                '--queries' = 'file'
                '--labels' = 'file'
                '--boxes' = 'file'
                '--images-from' = 'folder'
                '--box-root' = 'folder'
                '--root' = 'folder'
                '--max-suspects' = 'nothing'
                '-j' = 'nothing'
                '--jobs' = 'nothing'
                '--event-gap' = 'nothing'
                '--limit' = 'nothing'
                '--size' = 'nothing'
                '--cell' = 'nothing'
                '--bins' = 'nothing'
                '--power' = 'nothing'
                '--pca' = 'nothing'
                '--whiten' = 'nothing'
                '--parts' = 'nothing'
                '--crop' = 'nothing'
                '--mean' = 'nothing'
                '--std' = 'nothing'
                '--extractor-output' = 'nothing'
                '--min-confidence' = 'nothing'
                '--category' = 'nothing'
                '--box-margin' = 'nothing'
                '--path-column' = 'nothing'
                '--label-column' = 'nothing'
                '--features-key' = 'nothing'
                '--labels-key' = 'nothing'
                '--max-pixels' = 'nothing'
                '--max-failure-rate' = 'nothing'
                '--extractor' = 'asked'
                '--block-norm' = @('soft', 'clipped', 'none')
                '--dtype' = @('float32', 'float64')
                '--extractor-preset' = @('efficientnet-lite', 'imagenet', 'imagenet-v2', 'dinov2', 'dinov3', 'clip', 'siglip', 'vit', 'mobileclip', 'raw')
                '--filter' = @('nearest', 'box', 'bilinear', 'hamming', 'bicubic', 'lanczos')
                '--channels' = @('rgb', 'bgr', 'grey')
                '--layout' = @('nchw', 'nhwc')
                '--pool' = @('cls', 'mean', 'none')
                '--provider' = @('auto', 'cuda', 'tensorrt', 'rocm', 'migraphx', 'directml', 'coreml', 'openvino', 'xnnpack', 'cpu')
                '--box-unit' = @('relative', 'pixels')
                '--samples-axis' = @('rows', 'columns')
            }
        }
        'info' = @{
            Arguments = 'file'
            Commands = @()
            Options = @('-g', '--gallery', '--list-examples', '--target-accuracy', '--json', '-h', '--help', '--help-all')
            Values = @{
                '-g' = 'file'
                '--gallery' = 'file'
                '--target-accuracy' = 'nothing'
            }
        }
        'verify' = @{
            Arguments = 'file'
            Commands = @()
            Options = @('-g', '--gallery', '--source', '--labels', '--json', '-q', '--quiet', '-h', '--help', '--help-all', '--boxes', '--min-confidence', '--category', '--box-root', '--box-unit', '--box-margin', '--path-column', '--label-column', '--root', '--features-key', '--labels-key', '--samples-axis', '-0', '--null')
            Values = @{
                '-g' = 'file'
                '--gallery' = 'file'
                '--source' = 'file'
                '--labels' = 'file'
                '--boxes' = 'file'
                '--min-confidence' = 'nothing'
                '--category' = 'nothing'
                '--box-margin' = 'nothing'
                '--path-column' = 'nothing'
                '--label-column' = 'nothing'
                '--features-key' = 'nothing'
                '--labels-key' = 'nothing'
                '--box-root' = 'folder'
                '--root' = 'folder'
                '--box-unit' = @('relative', 'pixels')
                '--samples-axis' = @('rows', 'columns')
            }
        }
        'add' = @{
            Arguments = 'file'
            Commands = @()
            Options = @('-g', '--gallery', '--class', '--corrections', '--labels', '--strict', '--allow-skipped', '-j', '--jobs', '--dry-run', '--json', '-q', '--quiet', '-h', '--help', '--help-all', '--model-path', '--provider', '--boxes', '--min-confidence', '--category', '--box-root', '--box-unit', '--box-margin', '--path-column', '--label-column', '--root', '--features-key', '--labels-key', '--samples-axis', '-0', '--null', '--max-pixels', '--max-failure-rate', '--verbose')
            Values = @{
                '-g' = 'file'
                '--gallery' = 'file'
                '--corrections' = 'file'
                '--labels' = 'file'
                '--model-path' = 'file'
                '--boxes' = 'file'
                '--class' = 'asked'
                '-j' = 'nothing'
                '--jobs' = 'nothing'
                '--min-confidence' = 'nothing'
                '--category' = 'nothing'
                '--box-margin' = 'nothing'
                '--path-column' = 'nothing'
                '--label-column' = 'nothing'
                '--features-key' = 'nothing'
                '--labels-key' = 'nothing'
                '--max-pixels' = 'nothing'
                '--max-failure-rate' = 'nothing'
                '--provider' = @('auto', 'cuda', 'tensorrt', 'rocm', 'migraphx', 'directml', 'coreml', 'openvino', 'xnnpack', 'cpu')
                '--box-root' = 'folder'
                '--root' = 'folder'
                '--box-unit' = @('relative', 'pixels')
                '--samples-axis' = @('rows', 'columns')
            }
        }
        'correct' = @{
            Arguments = 'file'
            Commands = @()
            Options = @('--sources', '--strict', '--allow-skipped', '--dry-run', '--json', '-q', '--quiet', '-h', '--help', '--help-all', '--max-failure-rate', '--verbose')
            Values = @{
                '--sources' = 'folder'
                '--max-failure-rate' = 'nothing'
            }
        }
        'remove' = @{
            Arguments = 'file'
            Commands = @()
            Options = @('-g', '--gallery', '--class', '--example', '--marked-in', '--dry-run', '--json', '-q', '--quiet', '-h', '--help', '--help-all')
            Values = @{
                '-g' = 'file'
                '--gallery' = 'file'
                '--marked-in' = 'file'
                '--class' = 'asked'
                '--example' = 'asked'
            }
        }
        'rename' = @{
            Arguments = 'asked'
            Commands = @()
            Options = @('--merge', '--json', '-q', '--quiet', '-h', '--help', '--help-all')
            Values = @{
            }
        }
        'tune' = @{
            Arguments = 'file'
            Commands = @()
            Options = @('-o', '--output', '--budget', '--methods', '--extractor', '--try-parts', '--plot', '--labels', '--strict', '--allow-skipped', '-j', '--jobs', '--json', '-q', '--quiet', '-h', '--help', '--help-all', '--folds', '--try-neighbors', '--event-gap', '--size', '--color', '--gray', '--cell', '--bins', '--block-norm', '--dtype', '--try-power', '--try-pca', '--try-whiten', '--try-mirror', '--extractor-preset', '--crop', '--filter', '--mean', '--std', '--channels', '--layout', '--extractor-output', '--pool', '--mirror', '--provider', '--boxes', '--min-confidence', '--category', '--box-root', '--box-unit', '--box-margin', '--path-column', '--label-column', '--root', '--features-key', '--labels-key', '--samples-axis', '-0', '--null', '--max-pixels', '--max-failure-rate', '--verbose', '--dask')
            Values = @{
                '-o' = 'file'
                '--output' = 'file'
                '--plot' = 'file'
                '--labels' = 'file'
                '--boxes' = 'file'
                '--budget' = 'nothing'
                '--try-parts' = 'nothing'
                '-j' = 'nothing'
                '--jobs' = 'nothing'
                '--folds' = 'nothing'
                '--try-neighbors' = 'nothing'
                '--event-gap' = 'nothing'
                '--size' = 'nothing'
                '--cell' = 'nothing'
                '--bins' = 'nothing'
                '--try-power' = 'nothing'
                '--try-pca' = 'nothing'
                '--try-whiten' = 'nothing'
                '--crop' = 'nothing'
                '--mean' = 'nothing'
                '--std' = 'nothing'
                '--extractor-output' = 'nothing'
                '--min-confidence' = 'nothing'
                '--category' = 'nothing'
                '--box-margin' = 'nothing'
                '--path-column' = 'nothing'
                '--label-column' = 'nothing'
                '--features-key' = 'nothing'
                '--labels-key' = 'nothing'
                '--max-pixels' = 'nothing'
                '--max-failure-rate' = 'nothing'
                '--dask' = 'nothing'
                '--methods' = 'asked'
                '--extractor' = 'asked'
                '--block-norm' = @('soft', 'clipped', 'none')
                '--dtype' = @('float32', 'float64')
                '--extractor-preset' = @('efficientnet-lite', 'imagenet', 'imagenet-v2', 'dinov2', 'dinov3', 'clip', 'siglip', 'vit', 'mobileclip', 'raw')
                '--filter' = @('nearest', 'box', 'bilinear', 'hamming', 'bicubic', 'lanczos')
                '--channels' = @('rgb', 'bgr', 'grey')
                '--layout' = @('nchw', 'nhwc')
                '--pool' = @('cls', 'mean', 'none')
                '--provider' = @('auto', 'cuda', 'tensorrt', 'rocm', 'migraphx', 'directml', 'coreml', 'openvino', 'xnnpack', 'cpu')
                '--box-root' = 'folder'
                '--root' = 'folder'
                '--box-unit' = @('relative', 'pixels')
                '--samples-axis' = @('rows', 'columns')
            }
        }
        'compare' = @{
            Arguments = 'file'
            Commands = @()
            Options = @('--methods', '--test', '--holdout', '--set', '--csv', '--extractor', '--pca', '--labels', '--strict', '--allow-skipped', '-j', '--jobs', '--json', '-q', '--quiet', '-h', '--help', '--help-all', '--event-gap', '--size', '--color', '--gray', '--cell', '--bins', '--block-norm', '--dtype', '--power', '--whiten', '--parts', '--extractor-preset', '--crop', '--filter', '--mean', '--std', '--channels', '--layout', '--extractor-output', '--pool', '--mirror', '--provider', '--test-features-key', '--test-labels-key', '--draws', '--seed', '--boxes', '--min-confidence', '--category', '--box-root', '--box-unit', '--box-margin', '--path-column', '--label-column', '--root', '--features-key', '--labels-key', '--samples-axis', '-0', '--null', '--max-pixels', '--max-failure-rate', '--verbose', '--dask')
            Values = @{
                '--methods' = 'asked'
                '--set' = 'asked'
                '--extractor' = 'asked'
                '--test' = 'file'
                '--csv' = 'file'
                '--labels' = 'file'
                '--boxes' = 'file'
                '--holdout' = 'nothing'
                '--pca' = 'nothing'
                '-j' = 'nothing'
                '--jobs' = 'nothing'
                '--event-gap' = 'nothing'
                '--size' = 'nothing'
                '--cell' = 'nothing'
                '--bins' = 'nothing'
                '--power' = 'nothing'
                '--whiten' = 'nothing'
                '--parts' = 'nothing'
                '--crop' = 'nothing'
                '--mean' = 'nothing'
                '--std' = 'nothing'
                '--extractor-output' = 'nothing'
                '--test-features-key' = 'nothing'
                '--test-labels-key' = 'nothing'
                '--draws' = 'nothing'
                '--seed' = 'nothing'
                '--min-confidence' = 'nothing'
                '--category' = 'nothing'
                '--box-margin' = 'nothing'
                '--path-column' = 'nothing'
                '--label-column' = 'nothing'
                '--features-key' = 'nothing'
                '--labels-key' = 'nothing'
                '--max-pixels' = 'nothing'
                '--max-failure-rate' = 'nothing'
                '--dask' = 'nothing'
                '--block-norm' = @('soft', 'clipped', 'none')
                '--dtype' = @('float32', 'float64')
                '--extractor-preset' = @('efficientnet-lite', 'imagenet', 'imagenet-v2', 'dinov2', 'dinov3', 'clip', 'siglip', 'vit', 'mobileclip', 'raw')
                '--filter' = @('nearest', 'box', 'bilinear', 'hamming', 'bicubic', 'lanczos')
                '--channels' = @('rgb', 'bgr', 'grey')
                '--layout' = @('nchw', 'nhwc')
                '--pool' = @('cls', 'mean', 'none')
                '--provider' = @('auto', 'cuda', 'tensorrt', 'rocm', 'migraphx', 'directml', 'coreml', 'openvino', 'xnnpack', 'cpu')
                '--box-root' = 'folder'
                '--root' = 'folder'
                '--box-unit' = @('relative', 'pixels')
                '--samples-axis' = @('rows', 'columns')
            }
        }
        'split' = @{
            Arguments = 'file'
            Commands = @()
            Options = @('--train', '--test', '--share', '--per-class', '--seed', '--how', '--labels', '--strict', '--allow-skipped', '-j', '--jobs', '--dry-run', '--json', '-q', '--quiet', '-h', '--help', '--help-all', '--event-gap', '--group-similar', '--portable-names', '--path-column', '--label-column', '--root', '-0', '--null', '--max-pixels', '--max-failure-rate', '--verbose')
            Values = @{
                '--train' = 'folder'
                '--test' = 'folder'
                '--root' = 'folder'
                '--share' = 'nothing'
                '--per-class' = 'nothing'
                '--seed' = 'nothing'
                '-j' = 'nothing'
                '--jobs' = 'nothing'
                '--event-gap' = 'nothing'
                '--path-column' = 'nothing'
                '--label-column' = 'nothing'
                '--max-pixels' = 'nothing'
                '--max-failure-rate' = 'nothing'
                '--how' = @('copy', 'hardlink', 'link')
                '--labels' = 'file'
            }
        }
        'extract' = @{
            Arguments = 'file'
            Commands = @()
            Options = @('-o', '--output', '--like', '--extractor', '--size', '--update', '--labels', '--strict', '--allow-skipped', '-j', '--jobs', '--json', '-q', '--quiet', '-h', '--help', '--help-all', '--dates', '--color', '--gray', '--cell', '--bins', '--block-norm', '--extractor-preset', '--crop', '--filter', '--mean', '--std', '--channels', '--layout', '--extractor-output', '--pool', '--mirror', '--provider', '--boxes', '--min-confidence', '--category', '--box-root', '--box-unit', '--box-margin', '--path-column', '--label-column', '--root', '--features-key', '--labels-key', '--samples-axis', '-0', '--null', '--max-pixels', '--max-failure-rate', '--verbose', '--dask')
            Values = @{
                '-o' = 'file'
                '--output' = 'file'
                '--labels' = 'file'
                '--boxes' = 'file'
                '--like' = 'nothing'
                '--size' = 'nothing'
                '-j' = 'nothing'
                '--jobs' = 'nothing'
                '--dates' = 'nothing'
                '--cell' = 'nothing'
                '--bins' = 'nothing'
                '--crop' = 'nothing'
                '--mean' = 'nothing'
                '--std' = 'nothing'
                '--extractor-output' = 'nothing'
                '--min-confidence' = 'nothing'
                '--category' = 'nothing'
                '--box-margin' = 'nothing'
                '--path-column' = 'nothing'
                '--label-column' = 'nothing'
                '--features-key' = 'nothing'
                '--labels-key' = 'nothing'
                '--max-pixels' = 'nothing'
                '--max-failure-rate' = 'nothing'
                '--dask' = 'nothing'
                '--extractor' = 'asked'
                '--block-norm' = @('soft', 'clipped', 'none')
                '--extractor-preset' = @('efficientnet-lite', 'imagenet', 'imagenet-v2', 'dinov2', 'dinov3', 'clip', 'siglip', 'vit', 'mobileclip', 'raw')
                '--filter' = @('nearest', 'box', 'bilinear', 'hamming', 'bicubic', 'lanczos')
                '--channels' = @('rgb', 'bgr', 'grey')
                '--layout' = @('nchw', 'nhwc')
                '--pool' = @('cls', 'mean', 'none')
                '--provider' = @('auto', 'cuda', 'tensorrt', 'rocm', 'migraphx', 'directml', 'coreml', 'openvino', 'xnnpack', 'cpu')
                '--box-root' = 'folder'
                '--root' = 'folder'
                '--box-unit' = @('relative', 'pixels')
                '--samples-axis' = @('rows', 'columns')
            }
        }
        'model' = @{
            Arguments = 'commands'
            Commands = @('list', 'get', 'check')
            Options = @('-h', '--help', '--help-all')
            Values = @{
            }
        }
        'model list' = @{
            Arguments = 'nothing'
            Commands = @()
            Options = @('--json', '-h', '--help', '--help-all')
            Values = @{
            }
        }
        'model get' = @{
            Arguments = 'asked'
            Commands = @()
            Options = @('--weights', '--offline', '--json', '-q', '--quiet', '-h', '--help', '--help-all', '--revision')
            Values = @{
                '--weights' = 'file'
                '--revision' = 'nothing'
            }
        }
        'model check' = @{
            Arguments = 'file'
            Commands = @()
            Options = @('--image', '--size', '--extractor-preset', '--json', '-h', '--help', '--help-all', '--crop', '--filter', '--mean', '--std', '--channels', '--layout', '--extractor-output', '--pool', '--mirror', '--provider')
            Values = @{
                '--image' = 'file'
                '--size' = 'nothing'
                '--crop' = 'nothing'
                '--mean' = 'nothing'
                '--std' = 'nothing'
                '--extractor-output' = 'nothing'
                '--extractor-preset' = @('efficientnet-lite', 'imagenet', 'imagenet-v2', 'dinov2', 'dinov3', 'clip', 'siglip', 'vit', 'mobileclip', 'raw')
                '--filter' = @('nearest', 'box', 'bilinear', 'hamming', 'bicubic', 'lanczos')
                '--channels' = @('rgb', 'bgr', 'grey')
                '--layout' = @('nchw', 'nhwc')
                '--pool' = @('cls', 'mean', 'none')
                '--provider' = @('auto', 'cuda', 'tensorrt', 'rocm', 'migraphx', 'directml', 'coreml', 'openvino', 'xnnpack', 'cpu')
            }
        }
        'export' = @{
            Arguments = 'file'
            Commands = @()
            Options = @('--to', '-o', '--output', '--corrections', '--boxes', '--deployments', '--metadata', '--url-prefix', '--below', '--strict', '--allow-skipped', '--json', '-q', '--quiet', '-h', '--help', '--help-all', '--max-failure-rate', '--verbose')
            Values = @{
                '--to' = @('megadetector', 'camtrap-dp', 'label-studio', 'coco')
                '-o' = 'file'
                '--output' = 'file'
                '--corrections' = 'file'
                '--boxes' = 'file'
                '--deployments' = 'file'
                '--metadata' = 'file'
                '--url-prefix' = 'nothing'
                '--max-failure-rate' = 'nothing'
                '--below' = 'folder'
            }
        }
        'tag' = @{
            Arguments = 'file'
            Commands = @()
            Options = @('--naming', '--taxa', '--min-probability', '--corrections', '--below', '--undo', '--strict', '--allow-skipped', '--dry-run', '--json', '-q', '--quiet', '-h', '--help', '--help-all', '--max-failure-rate', '--verbose')
            Values = @{
                '--naming' = @('auto', 'photo.jpg.xmp', 'photo.xmp')
                '--taxa' = 'file'
                '--corrections' = 'file'
                '--undo' = 'file'
                '--min-probability' = 'nothing'
                '--max-failure-rate' = 'nothing'
                '--below' = 'folder'
            }
        }
    }
    # The words up to the cursor: what PowerShell calls the word to complete may be a part of one.
    $text = $commandAst.Extent.Text
    $length = $cursorPosition - $commandAst.Extent.StartOffset
    $text = if ($length -gt $text.Length) { "$text " } else { $text.Substring(0, $length) }
    $line = @($text -split '\s+')
    $current = $line[-1]
    $before = @($line | Select-Object -SkipLast 1)
    $words = @($before | Select-Object -Skip 1 | Where-Object { $_ -notlike '-*' })
    if ($words -and $words[0] -eq 'help') { $words = @($words | Select-Object -Skip 1) }
    $name = if ($words) { $words[0] } else { '' }
    if ($groups -contains $name -and $words.Count -gt 1) { $name = "$name $($words[1])" }
    $command = $commands[$name]
    if (-not $command) { return }
    $value = if ($before.Count -gt 1) { $command.Values[$before[-1]] }
    $found = @()
    if ($null -ne $value) {
        if ($value -is [array]) { $found = $value; $value = 'names' }
    } elseif ($current -like '-*') {
        $found = $command.Options
    } else {
        $found = $command.Commands
        $value = $command.Arguments
    }
    if ($value -eq 'asked') {
        $env:COMP_WORDS = $line -join ' '
        $env:COMP_CWORD = $before.Count
        $env:_CRNR_COMPLETE = 'complete_bash'
        try { $found = @(& $before[0] 2> $null) }
        finally { Remove-Item 'Env:COMP_WORDS', 'Env:COMP_CWORD', 'Env:_CRNR_COMPLETE' }
    }
    $kept = [Math]::Max(0, $current.Length - $wordToComplete.Length)
    $found | Where-Object { $_ -and $_.StartsWith($current) } | ForEach-Object {
        $text = $_.Substring($kept)
        if ($text -match '[^\w.,=/-]') { $text = "'" + $text.Replace("'", "''") + "'" }
        [System.Management.Automation.CompletionResult]::new($text, $_, 'ParameterValue', $_)
    }
}
