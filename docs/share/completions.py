"""Completion for bash, zsh, fish and PowerShell.

Commands, options and fixed names are part of the scripts, so that Tab is fast. What only crnr knows, such as
the names in a gallery, it is asked for in the way that Typer's completion for bash asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from commands import Command, Option

_MADE = "Completion for crnr, made by docs/share/make.py from its commands."


def completions(program: Command) -> dict[str, str]:
    """The scripts by their paths below share/."""
    scripts = {
        "bash-completion/completions/crnr": _bash,
        "zsh/site-functions/_crnr": _zsh,
        "fish/vendor_completions.d/crnr.fish": _fish,
        "pwsh/completions/_crnr.ps1": _powershell,
    }
    return {path: "".join(f"{line}\n" for line in script(program)) for path, script in scripts.items()}


def _groups(program: Command) -> list[str]:
    return [command.name for command in program.all()[1:] if command.below]


def _of_arguments(command: Command) -> str:
    """What completes the arguments: crnr if it knows any of them, or else files."""
    if command.below:
        return "commands"
    if any(argument.kind == "asked" for argument in command.arguments):
        return "asked"
    return "file" if command.arguments else "nothing"


def _names(options: Iterable[Option]) -> list[str]:
    return [name for option in options for name in option.names]


def _by_kind(command: Command) -> dict[tuple[str, str], list[str]]:
    """Names of options that take a value, by the kind of that and the names that it can be."""
    found: dict[tuple[str, str], list[str]] = {}
    for option in command.options:
        if option.metavar:
            choices = " ".join(option.choices) if option.kind == "names" else ""
            found.setdefault((option.kind, choices), []).extend(option.names)
    return found


_BASH = """\
# %s
_crnr() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}
    local command= kind=arguments names= options= arguments= word
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        case $command in
        '' | %s) [[ $word == -* ]] || command=${command:+$command }$word ;;
        *) break ;;
        esac
    done
    command=${command#help} command=${command# }
    case $command in"""
_BASH_END = """\
    esac
    COMPREPLY=()
    if [[ $kind == arguments ]]; then
        if [[ $current == -* ]]; then
            kind=names names=$options
        else
            kind=${arguments%%:*} names=${arguments#*:}
        fi
    fi
    local IFS=$' \\t\\n'
    case $kind in
    names) COMPREPLY=($(compgen -W "$names" -- "$current")) ;;
    folder) compopt -o dirnames +o default 2> /dev/null ;;
    nothing) compopt +o default 2> /dev/null ;;
    asked)
        local asked="${COMP_WORDS[*]}"
        IFS=$'\\r\\n'
        COMPREPLY=($(COMP_WORDS=$asked COMP_CWORD=$COMP_CWORD _CRNR_COMPLETE=complete_bash "$1" 2> /dev/null))
        ;;
    esac
}
complete -o default -F _crnr crnr"""


def _bash(program: Command) -> Iterator[str]:
    yield _BASH % (_MADE, " | ".join(["help", *_groups(program)]))
    for command in program.all():
        yield f"    {_quoted(command.name)})"
        yield f"        options={_quoted(' '.join(_names(command.options)))}"
        below = " ".join(command.below)
        yield f"        arguments={_quoted(f'names:{below}') if below else _of_arguments(command)}"
        if values := _by_kind(command):
            yield "        case $previous in"
            for (kind, choices), names in values.items():
                chosen = f" names={_quoted(choices)}" if choices else ""
                yield f"        {' | '.join(names)}) kind={kind}{chosen} ;;"
            yield "        esac"
        yield "        ;;"
    yield _BASH_END


_ZSH = """\
#compdef crnr
# %s
_crnr_ask() {
    [[ $PREFIX == -* ]] && return 1 # options are known
    local -a found
    found=("${(@f)$(COMP_WORDS="${_crnr_words[*]}" COMP_CWORD=$((_crnr_current - 1)) \\
        _CRNR_COMPLETE=complete_bash "${(Q)_crnr_words[1]}" 2> /dev/null)}")
    found=(${found:#})
    if (( $#found )); then compadd -S '' -a found; else _files; fi
}
_crnr() {
    local curcontext=$curcontext state state_descr line ret=1
    local -a _crnr_words=("${words[@]}")
    local -i _crnr_current=$CURRENT
    if [[ CURRENT -gt 2 && $words[2] == help ]]; then words[2]=() CURRENT=$((CURRENT - 1)); fi
    typeset -A opt_args"""
_ZSH_VALUES = {"nothing": " ", "file": "_files", "folder": "_files -/", "asked": "_crnr_ask"}


def _zsh(program: Command) -> Iterator[str]:
    yield _ZSH % _MADE
    yield from _zsh_command(program, "    ")
    yield "    return ret"
    yield "}"
    yield "_crnr"


def _zsh_command(command: Command, indent: str) -> Iterator[str]:
    is_group = bool(command.below)
    yield f"{indent}_arguments {'-C ' if is_group else ''}-s \\"
    for option in command.options:
        yield f"{indent}    {_zsh_option(option)} \\"
    if not is_group:
        kind = _of_arguments(command)
        of_arguments = "" if kind == "nothing" else f" {_quoted(f'*: :{_ZSH_VALUES[kind]}')}"
        yield f"{indent}   {of_arguments} && ret=0"
        return
    yield f"{indent}    '1: :->command' '*:: :->arguments' && ret=0"
    yield f"{indent}case $state in"
    yield f"{indent}command)"
    yield f"{indent}    local -a commands=("
    for name, below in command.below.items():
        yield f"{indent}        {_quoted(f'{name}:{below.summary}')}"
    yield f"{indent}    )"
    yield f"{indent}    _describe command commands && ret=0"
    yield f"{indent}    ;;"
    yield f"{indent}arguments)"
    yield f"{indent}    case $words[1] in"
    for name, below in command.below.items():
        yield f"{indent}    {name})"
        yield from _zsh_command(below, f"{indent}        ")
        yield f"{indent}        ;;"
    yield f"{indent}    esac"
    yield f"{indent}    ;;"
    yield f"{indent}esac"


def _zsh_option(option: Option) -> str:
    about = option.summary.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")
    value = ""
    if option.metavar:
        values = f"({' '.join(option.choices)})" if option.kind == "names" else _ZSH_VALUES[option.kind]
        value = f":{option.metavar.replace(':', ' ')}:{values}"
    if option.is_repeated:
        return " ".join(_quoted(f"*{name}[{about}]{value}") for name in option.names)
    together = f"({' '.join(option.names)})" if len(option.names) > 1 else ""
    return " ".join(_quoted(f"{together}{name}[{about}]{value}") for name in option.names)


_FISH = """\
# %s
# Whether the command on the line is this one: an empty name is that of crnr itself.
function __crnr_is
    set -l words (commandline -opc)[2..]
    set -l found (string match -v -- '-*' $words)
    set -q found[1]; and test $found[1] = help; and set -e found[1]
    set -l names $found[1]
    contains -- "$names" %s; and set names $found[1..2]
    contains -- "$names" $argv
end
function __crnr_ask
    set -l words (commandline -opc) (commandline -ct)
    set -l last (math (count $words) - 1)
    COMP_WORDS="$words" COMP_CWORD=$last _CRNR_COMPLETE=complete_bash $words[1] 2>/dev/null
end
complete -c crnr -f"""
_FISH_VALUES = {"nothing": " -x", "file": " -rF", "folder": " -xa '(__fish_complete_directories)'"}


def _fish(program: Command) -> Iterator[str]:
    yield _FISH % (_MADE, " ".join(_groups(program)))
    shared: dict[str, list[str]] = {}  # lines that several commands have, by what follows the condition
    for command in program.all():
        name = _quoted(command.name)
        for below, found in command.below.items():
            shared.setdefault(f" -a {below} -d {_fish_quoted(found.summary)}", []).append(name)
        kind = _of_arguments(command)
        if kind in ("file", "asked"):
            shared.setdefault(" -F", []).append(name)
        if kind == "asked":
            shared.setdefault(" -a '(__crnr_ask)'", []).append(name)
        for option in command.options:
            shared.setdefault(_fish_option(option), []).append(name)
    for line, names in shared.items():
        yield f'complete -c crnr -n "__crnr_is {" ".join(names)}"{line}'


def _fish_option(option: Option) -> str:
    names = [f" -l {name[2:]}" if name.startswith("--") else f" -s {name[1:]}" for name in option.names]
    value = ""
    if option.metavar:
        choices = " ".join(option.choices) if option.kind == "names" else "(__crnr_ask)"
        value = _FISH_VALUES.get(option.kind, f" -xa {_fish_quoted(choices)}")
    return f"{''.join(names)}{value} -d {_fish_quoted(option.summary)}"


_POWERSHELL = """\
# %s
Register-ArgumentCompleter -Native -CommandName crnr -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)
    $groups = @(%s)
    $commands = @{"""
_POWERSHELL_END = """\
    }
    # The words up to the cursor: what PowerShell calls the word to complete may be a part of one.
    $text = $commandAst.Extent.Text
    $length = $cursorPosition - $commandAst.Extent.StartOffset
    $text = if ($length -gt $text.Length) { "$text " } else { $text.Substring(0, $length) }
    $line = @($text -split '\\s+')
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
        if ($text -match '[^\\w.,=/-]') { $text = "'" + $text.Replace("'", "''") + "'" }
        [System.Management.Automation.CompletionResult]::new($text, $_, 'ParameterValue', $_)
    }
}"""


def _powershell(program: Command) -> Iterator[str]:
    yield _POWERSHELL % (_MADE, ", ".join(map(_ps_quoted, _groups(program))))
    for command in program.all():
        yield f"        {_ps_quoted(command.name)} = @{{"
        yield f"            Arguments = {_ps_quoted(_of_arguments(command))}"
        yield f"            Commands = @({', '.join(map(_ps_quoted, command.below))})"
        yield f"            Options = @({', '.join(map(_ps_quoted, _names(command.options)))})"
        yield "            Values = @{"
        for (kind, choices), names in _by_kind(command).items():
            value = f"@({', '.join(map(_ps_quoted, choices.split()))})" if choices else _ps_quoted(kind)
            for name in names:
                yield f"                {_ps_quoted(name)} = {value}"
        yield "            }"
        yield "        }"
    yield _POWERSHELL_END


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _ps_quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
