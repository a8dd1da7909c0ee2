"""The evaluation's plot as a picture of pixels, by matplotlib: the extra ``plot``, imported only where one is wanted.

Belongs here: the PNG. Does not: what is drawn (``evaluate``), nor the drawings that need no library (there, too).
"""

from __future__ import annotations

import importlib
import warnings
from typing import TYPE_CHECKING, Any, Final

from vault_memory.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from vault_memory.query.evaluation import Estimate

_INCHES_A_ROW: Final = 0.28
_APART: Final = 0.26
# The first that is installed and holds a character draws it; a name of a slice may be in any language.
_FONTS: Final = (
    "DejaVu Sans",
    "Noto Sans CJK SC",
    "Noto Sans SC",
    "PingFang SC",
    "WenQuanYi Zen Hei",
    "Microsoft YaHei",
)


def require() -> None:
    """Make sure that a picture can be drawn, before anything is measured for it.

    Raises:
        MissingExtraError: The library is not installed.
    """
    try:
        importlib.import_module("matplotlib.figure")  # half a second, and only for pictures
    except ImportError:
        raise MissingExtraError("a plot as .png (.html and .svg do without)", "plot") from None


def draw(
    path: Path,
    rows: Sequence[tuple[str, Sequence[Estimate]]],
    *,
    names: Sequence[str],
    colours: Sequence[str],
    minimum: float | None,
) -> None:
    """Write the picture.

    Args:
        path: Of the file.
        rows: From top to bottom: a label, and an estimate for each setting; one without estimates is a gap.
        names: Of the settings.
        colours: Of the settings.
        minimum: Where a line marks what was wanted.

    Raises:
        OSError: The file cannot be written.
    """
    from matplotlib import font_manager  # noqa: PLC0415 - as above
    from matplotlib.figure import Figure  # noqa: PLC0415 - as above

    known = set(font_manager.get_font_names())
    figure: Any = Figure(figsize=(7.5, 1.2 + _INCHES_A_ROW * len(rows)), layout="constrained")
    axes = figure.subplots()
    places = [-float(place) for place in range(len(rows))]
    for number, (name, colour) in enumerate(zip(names, colours, strict=False)):
        shift = _APART * (len(names) - 1) / 2 - _APART * number
        shown = [(place + shift, row[number]) for place, (_, row) in zip(places, rows, strict=True) if row]
        values = [one.value for _, one in shown]
        below = [max(one.value - one.low, 0.0) for _, one in shown]
        above = [max(one.high - one.value, 0.0) for _, one in shown]
        axes.errorbar(
            values, [y for y, _ in shown], xerr=(below, above), fmt="o", color=colour, markersize=5, label=name
        )
    if minimum is not None:
        axes.axvline(minimum, color="#cc0000", linestyle="--", linewidth=1)
    family = [font for font in _FONTS if font in known]
    axes.set_yticks(places, [label for label, _ in rows], fontfamily=family)
    axes.set(xlim=(-0.02, 1.02), ylim=(0.8 - len(rows), 0.8))
    axes.tick_params(left=False)
    axes.grid(axis="x", color="#dddddd")
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    figure.legend(loc="outside upper left", ncols=len(names), frameon=False)
    with warnings.catch_warnings():
        # Where no font has a character of a label, a box stands for it.
        warnings.filterwarnings("ignore", message="Glyph ")
        figure.savefig(path, format="png", dpi=150)
