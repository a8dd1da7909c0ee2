"""The Claude Code plugin that travels in this package, laid out as a marketplace of its own.

Belongs here: which files, and the command lines in them. Does not: which command line finds this installation
(``commands.agent`` knows), and telling Claude Code about it.

A marketplace is a folder with ``.claude-plugin/marketplace.json``; a plugin is one with ``.claude-plugin/plugin.json``
and, at its top, ``hooks/hooks.json``, ``skills/*/SKILL.md`` and ``.mcp.json``.
"""

from __future__ import annotations

import json
import shlex
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from vault_memory import __version__
from vault_memory.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NAME: Final = "vault-memory"
_FILES: Final = (".claude-plugin/plugin.json", "hooks/hooks.json", ".mcp.json", "skills/vault-memory/SKILL.md")
_MARKETPLACE: Final = ".claude-plugin/marketplace.json"


def write(target: Path, *, hook: Sequence[str], mcp: Sequence[str], environment: Mapping[str, str]) -> None:
    """Write the marketplace with the plugin into a folder; files of ours that lie there are replaced.

    Args:
        target: The marketplace's folder; made if it is not there.
        hook: Command line of the hooks.
        mcp: Command line of the MCP server.
        environment: Variables that both need, and the shell that starts Claude Code may lack.

    Raises:
        ConfigError: The folder holds something else.
    """
    if target.exists() and any(target.iterdir()) and not _is_ours(target):
        raise ConfigError(f"{target}: is not empty and not a plugin of ours; choose another folder")
    # Without quotes of its own a path with a space would be two words to the host's shell.
    line = shlex.join(["env", *(f"{name}={value}" for name, value in environment.items()), *hook])
    for name in _FILES:
        text = resources.files("vault_memory.agent").joinpath("plugin", name).read_text(encoding="utf-8")
        if name.endswith(".json"):
            text = _json(_filled(name, json.loads(text), line=line, mcp=mcp, environment=environment))
        _put(target / "plugins" / NAME / name, text)
    _put(target / _MARKETPLACE, _json(_marketplace()))


def _filled(name: str, content: Any, *, line: str, mcp: Sequence[str], environment: Mapping[str, str]) -> Any:
    if name == ".mcp.json":
        content["mcpServers"][NAME] = {"command": mcp[0], "args": [*mcp[1:]], "env": dict(environment)}
    elif name == "hooks/hooks.json":
        for groups in content["hooks"].values():
            for group in groups:
                for hook in group["hooks"]:
                    hook["command"] = line
    else:
        content["version"] = __version__  # updates reach the host when this changes, and only then
    return content


def _marketplace() -> dict[str, Any]:
    return {
        "name": NAME,
        "owner": {"name": NAME},
        "plugins": [
            {"name": NAME, "source": f"./plugins/{NAME}", "description": "Long-term memory from the user's own notes"}
        ],
    }


def _is_ours(target: Path) -> bool:
    try:
        return json.loads((target / _MARKETPLACE).read_text(encoding="utf-8"))["name"] == NAME
    except (OSError, ValueError, LookupError, TypeError):
        return False


def _json(content: Any) -> str:
    return json.dumps(content, ensure_ascii=False, indent=2) + "\n"


def _put(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".draft")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)
