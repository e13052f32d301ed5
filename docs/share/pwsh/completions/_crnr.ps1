# Completion for crnr, made by docs/share/make.py from its commands.
Register-ArgumentCompleter -Native -CommandName crnr -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)
    $groups = @('model')
    $commands = @{
        '' = @{
            Arguments = 'commands'
            Commands = @('build', 'classify', 'evaluate', 'review', 'sort', 'compare', 'tune', 'audit', 'explain', 'info', 'verify', 'split', 'add', 'remove', 'rename', 'extract', 'model')
            Options = @('--version', '--install-completion', '--show-completion', '-h', '--help')
            Values = @{
            }
        }
        'build' = @{
            Arguments = 'file'
            Commands = @()
            Options = @('-o', '--output', '--update', '--cache', '--dask', '--extractor', '--size', '--color', '--grey', '--cell', '--bins', '--block-norm', '--dtype', '--power', '--pca', '--parts', '--extractor-preset', '--crop', '--filter', '--mean', '--std', '--channels', '--layout', '--extractor-output', '--pool', '--provider', '--method', '--calibrate', '--features-key', '--labels-key', '--samples', '--labels', '--path-column', '--label-column', '--root', '-0', '--null', '--max-pixels', '-j', '--jobs', '--strict', '--max-failure-rate', '--allow-skipped', '-q', '--quiet', '--json', '--lam', '--mu', '--iterations', '--tol', '--factor', '--neighbors', '--index', '--gamma', '--weight', '--c', '-h', '--help')
            Values = @{
                '-o' = 'file'
                '--output' = 'file'
                '--cache' = 'file'
                '--labels' = 'file'
                '--dask' = 'nothing'
                '--size' = 'nothing'
                '--cell' = 'nothing'
                '--bins' = 'nothing'
                '--power' = 'nothing'
                '--pca' = 'nothing'
                '--parts' = 'nothing'
                '--crop' = 'nothing'
                '--mean' = 'nothing'
                '--std' = 'nothing'
                '--extractor-output' = 'nothing'
                '--features-key' = 'nothing'
                '--labels-key' = 'nothing'
                '--path-column' = 'nothing'
                '--label-column' = 'nothing'
                '--max-pixels' = 'nothing'
                '-j' = 'nothing'
                '--jobs' = 'nothing'
                '--max-failure-rate' = 'nothing'
                '--lam' = 'nothing'
                '--mu' = 'nothing'
                '--iterations' = 'nothing'
                '--tol' = 'nothing'
                '--neighbors' = 'nothing'
                '--gamma' = 'nothing'
                '--weight' = 'nothing'
                '--c' = 'nothing'
                '--extractor' = 'asked'
                '--block-norm' = @('soft', 'clipped', 'none')
                '--dtype' = @('float32', 'float64')
                '--extractor-preset' = @('efficientnet-lite', 'imagenet', 'imagenet-v2', 'dinov2', 'dinov3', 'clip', 'siglip', 'vit', 'mobileclip', 'raw')
                '--filter' = @('nearest', 'box', 'bilinear', 'hamming', 'bicubic', 'lanczos')
                '--channels' = @('rgb', 'bgr', 'grey')
                '--layout' = @('nchw', 'nhwc')
                '--pool' = @('cls', 'mean', 'none')
                '--provider' = @('auto', 'cuda', 'tensorrt', 'rocm', 'migraphx', 'directml', 'coreml', 'openvino', 'xnnpack', 'cpu')
                '--method' = @('crnr', 'nrc', 'crc', 'nsc', 'src', 'croc', 'procrc', 'nn', 'svm', 'softmax')
                '--samples' = @('rows', 'columns')
                '--root' = 'folder'
                '--factor' = @('auto', 'dense', 'low-rank')
                '--index' = @('exact', 'ivf', 'hnsw')
            }
        }
        'classify' = @{
            Arguments = 'file'
            Commands = @()
            Options = @('-g', '--gallery', '-o', '--output', '--top', '--dask', '--resume', '--batch-size', '--reject', '--min-probability', '--sets', '--features-key', '--labels-key', '--samples', '--labels', '--path-column', '--label-column', '--root', '-0', '--null', '--max-pixels', '-j', '--jobs', '--extractor', '--provider', '--strict', '--max-failure-rate', '--allow-skipped', '--json', '--format', '-q', '--quiet', '-h', '--help')
            Values = @{
                '-g' = 'file'
                '--gallery' = 'file'
                '-o' = 'file'
                '--output' = 'file'
                '--labels' = 'file'
                '--extractor' = 'file'
                '--top' = 'nothing'
                '--dask' = 'nothing'
                '--batch-size' = 'nothing'
                '--reject' = 'nothing'
                '--min-probability' = 'nothing'
                '--sets' = 'nothing'
                '--features-key' = 'nothing'
                '--labels-key' = 'nothing'
                '--path-column' = 'nothing'
                '--label-column' = 'nothing'
                '--max-pixels' = 'nothing'
                '-j' = 'nothing'
                '--jobs' = 'nothing'
                '--max-failure-rate' = 'nothing'
                '--samples' = @('rows', 'columns')
                '--root' = 'folder'
                '--provider' = @('auto', 'cuda', 'tensorrt', 'rocm', 'migraphx', 'directml', 'coreml', 'openvino', 'xnnpack', 'cpu')
                '--format' = @('csv', 'jsonl', 'parquet')
            }
        }
        'evaluate' = @{
            Arguments = 'file'
            Commands = @()
            Options = @('-g', '--gallery', '--corrections', '--errors', '--confusion', '--html', '--images-from', '--outsiders', '--min-accuracy', '--min-f1', '--min-coverage', '--min-rejected', '--reject', '--min-probability', '--sets', '--features-key', '--labels-key', '--samples', '--labels', '--path-column', '--label-column', '--root', '-0', '--null', '--max-pixels', '-j', '--jobs', '--extractor', '--provider', '--strict', '--max-failure-rate', '--allow-skipped', '-q', '--quiet', '--json', '-h', '--help')
            Values = @{
                '-g' = 'file'
                '--gallery' = 'file'
                '--corrections' = 'file'
                '--errors' = 'file'
                '--confusion' = 'file'
                '--html' = 'file'
                '--labels' = 'file'
                '--extractor' = 'file'
                '--images-from' = 'folder'
                '--outsiders' = 'folder'
                '--root' = 'folder'
                '--min-accuracy' = 'nothing'
                '--min-f1' = 'nothing'
                '--min-coverage' = 'nothing'
                '--min-rejected' = 'nothing'
                '--reject' = 'nothing'
                '--min-probability' = 'nothing'
                '--sets' = 'nothing'
                '--features-key' = 'nothing'
                '--labels-key' = 'nothing'
                '--path-column' = 'nothing'
                '--label-column' = 'nothing'
                '--max-pixels' = 'nothing'
                '-j' = 'nothing'
                '--jobs' = 'nothing'
                '--max-failure-rate' = 'nothing'
                '--samples' = @('rows', 'columns')
                '--provider' = @('auto', 'cuda', 'tensorrt', 'rocm', 'migraphx', 'directml', 'coreml', 'openvino', 'xnnpack', 'cpu')
            }
        }
        'review' = @{
            Arguments = 'file'
            Commands = @()
            Options = @('-o', '--output', '-g', '--gallery', '--limit', '--images-from', '--extractor', '--provider', '-q', '--quiet', '--json', '-h', '--help')
            Values = @{
                '-o' = 'file'
                '--output' = 'file'
                '-g' = 'file'
                '--gallery' = 'file'
                '--extractor' = 'file'
                '--limit' = 'nothing'
                '--images-from' = 'folder'
                '--provider' = @('auto', 'cuda', 'tensorrt', 'rocm', 'migraphx', 'directml', 'coreml', 'openvino', 'xnnpack', 'cpu')
            }
        }
        'sort' = @{
            Arguments = 'file'
            Commands = @()
            Options = @('--below', '--undo', '--how', '--template', '--min-probability', '--portable-names', '--dry-run', '--strict', '--max-failure-rate', '--allow-skipped', '-q', '--quiet', '--json', '-h', '--help')
            Values = @{
                '--below' = 'folder'
                '--undo' = 'file'
                '--how' = @('copy', 'hardlink', 'link', 'move')
                '--template' = 'nothing'
                '--min-probability' = 'nothing'
                '--max-failure-rate' = 'nothing'
            }
        }
        'compare' = @{
            Arguments = 'file'
            Commands = @()
            Options = @('--methods', '--set', '--csv', '--dask', '--test', '--test-features-key', '--test-labels-key', '--holdout', '--draws', '--seed', '--extractor', '--size', '--color', '--grey', '--cell', '--bins', '--block-norm', '--dtype', '--power', '--pca', '--parts', '--extractor-preset', '--crop', '--filter', '--mean', '--std', '--channels', '--layout', '--extractor-output', '--pool', '--provider', '--features-key', '--labels-key', '--samples', '--labels', '--path-column', '--label-column', '--root', '-0', '--null', '--max-pixels', '-j', '--jobs', '--strict', '--max-failure-rate', '--allow-skipped', '-q', '--quiet', '--json', '-h', '--help')
            Values = @{
                '--methods' = 'asked'
                '--set' = 'asked'
                '--extractor' = 'asked'
                '--csv' = 'file'
                '--test' = 'file'
                '--labels' = 'file'
                '--dask' = 'nothing'
                '--test-features-key' = 'nothing'
                '--test-labels-key' = 'nothing'
                '--holdout' = 'nothing'
                '--draws' = 'nothing'
                '--seed' = 'nothing'
                '--size' = 'nothing'
                '--cell' = 'nothing'
                '--bins' = 'nothing'
                '--power' = 'nothing'
                '--pca' = 'nothing'
                '--parts' = 'nothing'
                '--crop' = 'nothing'
                '--mean' = 'nothing'
                '--std' = 'nothing'
                '--extractor-output' = 'nothing'
                '--features-key' = 'nothing'
                '--labels-key' = 'nothing'
                '--path-column' = 'nothing'
                '--label-column' = 'nothing'
                '--max-pixels' = 'nothing'
                '-j' = 'nothing'
                '--jobs' = 'nothing'
                '--max-failure-rate' = 'nothing'
                '--block-norm' = @('soft', 'clipped', 'none')
                '--dtype' = @('float32', 'float64')
                '--extractor-preset' = @('efficientnet-lite', 'imagenet', 'imagenet-v2', 'dinov2', 'dinov3', 'clip', 'siglip', 'vit', 'mobileclip', 'raw')
                '--filter' = @('nearest', 'box', 'bilinear', 'hamming', 'bicubic', 'lanczos')
                '--channels' = @('rgb', 'bgr', 'grey')
                '--layout' = @('nchw', 'nhwc')
                '--pool' = @('cls', 'mean', 'none')
                '--provider' = @('auto', 'cuda', 'tensorrt', 'rocm', 'migraphx', 'directml', 'coreml', 'openvino', 'xnnpack', 'cpu')
                '--samples' = @('rows', 'columns')
                '--root' = 'folder'
            }
        }
        'tune' = @{
            Arguments = 'file'
            Commands = @()
            Options = @('-o', '--output', '--methods', '--folds', '--budget', '--neighbors', '--try-parts', '--plot', '--dask', '--extractor', '--size', '--color', '--grey', '--cell', '--bins', '--block-norm', '--dtype', '--power', '--pca', '--parts', '--extractor-preset', '--crop', '--filter', '--mean', '--std', '--channels', '--layout', '--extractor-output', '--pool', '--provider', '--features-key', '--labels-key', '--samples', '--labels', '--path-column', '--label-column', '--root', '-0', '--null', '--max-pixels', '-j', '--jobs', '--strict', '--max-failure-rate', '--allow-skipped', '-q', '--quiet', '--json', '-h', '--help')
            Values = @{
                '-o' = 'file'
                '--output' = 'file'
                '--plot' = 'file'
                '--labels' = 'file'
                '--methods' = 'asked'
                '--extractor' = 'asked'
                '--folds' = 'nothing'
                '--budget' = 'nothing'
                '--neighbors' = 'nothing'
                '--dask' = 'nothing'
                '--size' = 'nothing'
                '--cell' = 'nothing'
                '--bins' = 'nothing'
                '--power' = 'nothing'
                '--pca' = 'nothing'
                '--parts' = 'nothing'
                '--crop' = 'nothing'
                '--mean' = 'nothing'
                '--std' = 'nothing'
                '--extractor-output' = 'nothing'
                '--features-key' = 'nothing'
                '--labels-key' = 'nothing'
                '--path-column' = 'nothing'
                '--label-column' = 'nothing'
                '--max-pixels' = 'nothing'
                '-j' = 'nothing'
                '--jobs' = 'nothing'
                '--max-failure-rate' = 'nothing'
                '--block-norm' = @('soft', 'clipped', 'none')
                '--dtype' = @('float32', 'float64')
                '--extractor-preset' = @('efficientnet-lite', 'imagenet', 'imagenet-v2', 'dinov2', 'dinov3', 'clip', 'siglip', 'vit', 'mobileclip', 'raw')
                '--filter' = @('nearest', 'box', 'bilinear', 'hamming', 'bicubic', 'lanczos')
                '--channels' = @('rgb', 'bgr', 'grey')
                '--layout' = @('nchw', 'nhwc')
                '--pool' = @('cls', 'mean', 'none')
                '--provider' = @('auto', 'cuda', 'tensorrt', 'rocm', 'migraphx', 'directml', 'coreml', 'openvino', 'xnnpack', 'cpu')
                '--samples' = @('rows', 'columns')
                '--root' = 'folder'
            }
        }
        'audit' = @{
            Arguments = 'file'
            Commands = @()
            Options = @('--against', '--csv', '--html', '--images-from', '--max-suspects', '--extractor', '--size', '--color', '--grey', '--cell', '--bins', '--block-norm', '--dtype', '--power', '--pca', '--parts', '--extractor-preset', '--crop', '--filter', '--mean', '--std', '--channels', '--layout', '--extractor-output', '--pool', '--provider', '--features-key', '--labels-key', '--samples', '--labels', '--path-column', '--label-column', '--root', '-0', '--null', '--max-pixels', '-j', '--jobs', '--strict', '--max-failure-rate', '--allow-skipped', '-q', '--quiet', '--json', '-h', '--help')
            Values = @{
                '--against' = 'file'
                '--csv' = 'file'
                '--html' = 'file'
                '--labels' = 'file'
                '--images-from' = 'folder'
                '--root' = 'folder'
                '--max-suspects' = 'nothing'
                '--size' = 'nothing'
                '--cell' = 'nothing'
                '--bins' = 'nothing'
                '--power' = 'nothing'
                '--pca' = 'nothing'
                '--parts' = 'nothing'
                '--crop' = 'nothing'
                '--mean' = 'nothing'
                '--std' = 'nothing'
                '--extractor-output' = 'nothing'
                '--features-key' = 'nothing'
                '--labels-key' = 'nothing'
                '--path-column' = 'nothing'
                '--label-column' = 'nothing'
                '--max-pixels' = 'nothing'
                '-j' = 'nothing'
                '--jobs' = 'nothing'
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
                '--samples' = @('rows', 'columns')
            }
        }
        'explain' = @{
            Arguments = 'file'
            Commands = @()
            Options = @('-g', '--gallery', '--against', '-o', '--output', '--images-from', '--features-key', '--labels-key', '--samples', '--labels', '--path-column', '--label-column', '--root', '-0', '--null', '--max-pixels', '-j', '--jobs', '--extractor', '--provider', '-q', '--quiet', '--json', '-h', '--help')
            Values = @{
                '-g' = 'file'
                '--gallery' = 'file'
                '-o' = 'file'
                '--output' = 'file'
                '--labels' = 'file'
                '--extractor' = 'file'
                '--against' = @('crnr', 'nrc', 'crc', 'nsc', 'src', 'croc', 'procrc', 'nn', 'svm', 'softmax')
                '--images-from' = 'folder'
                '--root' = 'folder'
                '--features-key' = 'nothing'
                '--labels-key' = 'nothing'
                '--path-column' = 'nothing'
                '--label-column' = 'nothing'
                '--max-pixels' = 'nothing'
                '-j' = 'nothing'
                '--jobs' = 'nothing'
                '--samples' = @('rows', 'columns')
                '--provider' = @('auto', 'cuda', 'tensorrt', 'rocm', 'migraphx', 'directml', 'coreml', 'openvino', 'xnnpack', 'cpu')
            }
        }
        'info' = @{
            Arguments = 'file'
            Commands = @()
            Options = @('-g', '--gallery', '--samples', '--json', '-h', '--help')
            Values = @{
                '-g' = 'file'
                '--gallery' = 'file'
            }
        }
        'verify' = @{
            Arguments = 'file'
            Commands = @()
            Options = @('-g', '--gallery', '--against', '--features-key', '--labels-key', '--samples', '--labels', '--path-column', '--label-column', '--root', '-0', '--null', '--max-pixels', '-j', '--jobs', '-q', '--quiet', '--json', '-h', '--help')
            Values = @{
                '-g' = 'file'
                '--gallery' = 'file'
                '--against' = 'file'
                '--labels' = 'file'
                '--features-key' = 'nothing'
                '--labels-key' = 'nothing'
                '--path-column' = 'nothing'
                '--label-column' = 'nothing'
                '--max-pixels' = 'nothing'
                '-j' = 'nothing'
                '--jobs' = 'nothing'
                '--samples' = @('rows', 'columns')
                '--root' = 'folder'
            }
        }
        'split' = @{
            Arguments = 'file'
            Commands = @()
            Options = @('-g', '--gallery', '--queries', '--share', '--per-class', '--seed', '--how', '--portable-names', '--dry-run', '--features-key', '--labels-key', '--samples', '--labels', '--path-column', '--label-column', '--root', '-0', '--null', '--max-pixels', '-j', '--jobs', '--strict', '--max-failure-rate', '--allow-skipped', '-q', '--quiet', '--json', '-h', '--help')
            Values = @{
                '-g' = 'folder'
                '--gallery' = 'folder'
                '--queries' = 'folder'
                '--root' = 'folder'
                '--share' = 'nothing'
                '--per-class' = 'nothing'
                '--seed' = 'nothing'
                '--features-key' = 'nothing'
                '--labels-key' = 'nothing'
                '--path-column' = 'nothing'
                '--label-column' = 'nothing'
                '--max-pixels' = 'nothing'
                '-j' = 'nothing'
                '--jobs' = 'nothing'
                '--max-failure-rate' = 'nothing'
                '--how' = @('copy', 'hardlink', 'link')
                '--samples' = @('rows', 'columns')
                '--labels' = 'file'
            }
        }
        'add' = @{
            Arguments = 'file'
            Commands = @()
            Options = @('-g', '--gallery', '--class', '--corrections', '--features-key', '--labels-key', '--samples', '--labels', '--path-column', '--label-column', '--root', '-0', '--null', '--max-pixels', '-j', '--jobs', '--extractor', '--provider', '--strict', '--max-failure-rate', '--allow-skipped', '-q', '--quiet', '--json', '-h', '--help')
            Values = @{
                '-g' = 'file'
                '--gallery' = 'file'
                '--corrections' = 'file'
                '--labels' = 'file'
                '--extractor' = 'file'
                '--class' = 'asked'
                '--features-key' = 'nothing'
                '--labels-key' = 'nothing'
                '--path-column' = 'nothing'
                '--label-column' = 'nothing'
                '--max-pixels' = 'nothing'
                '-j' = 'nothing'
                '--jobs' = 'nothing'
                '--max-failure-rate' = 'nothing'
                '--samples' = @('rows', 'columns')
                '--root' = 'folder'
                '--provider' = @('auto', 'cuda', 'tensorrt', 'rocm', 'migraphx', 'directml', 'coreml', 'openvino', 'xnnpack', 'cpu')
            }
        }
        'remove' = @{
            Arguments = 'file'
            Commands = @()
            Options = @('-g', '--gallery', '--class', '--sample', '--from', '--dry-run', '-q', '--quiet', '--json', '-h', '--help')
            Values = @{
                '-g' = 'file'
                '--gallery' = 'file'
                '--from' = 'file'
                '--class' = 'asked'
                '--sample' = 'asked'
            }
        }
        'rename' = @{
            Arguments = 'asked'
            Commands = @()
            Options = @('--merge', '-q', '--quiet', '--json', '-h', '--help')
            Values = @{
            }
        }
        'extract' = @{
            Arguments = 'file'
            Commands = @()
            Options = @('-o', '--output', '--update', '--dask', '--extractor', '--size', '--color', '--grey', '--cell', '--bins', '--block-norm', '--extractor-preset', '--crop', '--filter', '--mean', '--std', '--channels', '--layout', '--extractor-output', '--pool', '--provider', '--features-key', '--labels-key', '--samples', '--labels', '--path-column', '--label-column', '--root', '-0', '--null', '--max-pixels', '-j', '--jobs', '--strict', '--max-failure-rate', '--allow-skipped', '-q', '--quiet', '--json', '-h', '--help')
            Values = @{
                '-o' = 'file'
                '--output' = 'file'
                '--labels' = 'file'
                '--dask' = 'nothing'
                '--size' = 'nothing'
                '--cell' = 'nothing'
                '--bins' = 'nothing'
                '--crop' = 'nothing'
                '--mean' = 'nothing'
                '--std' = 'nothing'
                '--extractor-output' = 'nothing'
                '--features-key' = 'nothing'
                '--labels-key' = 'nothing'
                '--path-column' = 'nothing'
                '--label-column' = 'nothing'
                '--max-pixels' = 'nothing'
                '-j' = 'nothing'
                '--jobs' = 'nothing'
                '--max-failure-rate' = 'nothing'
                '--extractor' = 'asked'
                '--block-norm' = @('soft', 'clipped', 'none')
                '--extractor-preset' = @('efficientnet-lite', 'imagenet', 'imagenet-v2', 'dinov2', 'dinov3', 'clip', 'siglip', 'vit', 'mobileclip', 'raw')
                '--filter' = @('nearest', 'box', 'bilinear', 'hamming', 'bicubic', 'lanczos')
                '--channels' = @('rgb', 'bgr', 'grey')
                '--layout' = @('nchw', 'nhwc')
                '--pool' = @('cls', 'mean', 'none')
                '--provider' = @('auto', 'cuda', 'tensorrt', 'rocm', 'migraphx', 'directml', 'coreml', 'openvino', 'xnnpack', 'cpu')
                '--samples' = @('rows', 'columns')
                '--root' = 'folder'
            }
        }
        'model' = @{
            Arguments = 'commands'
            Commands = @('list', 'get', 'check')
            Options = @('-h', '--help')
            Values = @{
            }
        }
        'model list' = @{
            Arguments = 'nothing'
            Commands = @()
            Options = @('--json', '-h', '--help')
            Values = @{
            }
        }
        'model get' = @{
            Arguments = 'asked'
            Commands = @()
            Options = @('--from', '-q', '--quiet', '--json', '-h', '--help')
            Values = @{
                '--from' = 'file'
            }
        }
        'model check' = @{
            Arguments = 'file'
            Commands = @()
            Options = @('--image', '--size', '--extractor-preset', '--crop', '--filter', '--mean', '--std', '--channels', '--layout', '--extractor-output', '--pool', '--provider', '--json', '-h', '--help')
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
