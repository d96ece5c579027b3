"""The figures of a cluster as tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from specwhisper.printable import blanked
from specwhisper_top.figures import DRAFT, DRAINING, GATEWAY, KINDS, LOST, SERVING, TARGET, Figures

BAR_CELLS = 6
WIDE = 118  # characters for all columns
BUSY, FULL = 0.75, 1.0  # shares of a server's capacity
EIGHTHS = " ▏▎▍▌▋▊▉█"
TITLES = {TARGET: "target servers", DRAFT: "draft servers", GATEWAY: "gateways"}
STATE_STYLES = {DRAINING: "yellow", LOST: "bold red"}


@dataclass(frozen=True, slots=True)
class Column:
    """A column; ``is_optional`` ones are omitted on narrow terminals."""

    title: str
    show: Callable[[Figures], Text]
    is_optional: bool = False


def cluster_view(
    rows: Sequence[Figures], totals: Mapping[str, Figures], title: str, *, width: int
) -> RenderableType:
    parts: list[RenderableType] = [Text.assemble(("specwhisper top", "bold"), ("  " + title, "dim"))]
    for kind in KINDS:
        of_kind = [row for row in rows if row.kind == kind]
        if of_kind:
            parts += [Text(), _table(kind, of_kind, totals[kind], is_wide=width >= WIDE)]
    lost = [row for row in rows if row.state == LOST]
    if lost:
        parts.append(Text())
    for row in lost:
        parts.append(
            Text.assemble(("● ", "bold red"), blanked(row.address), "  ", (blanked(row.reason), "red"))
        )
    return Group(*parts)


def _table(kind: str, rows: Sequence[Figures], total: Figures, *, is_wide: bool) -> Table:
    has_footer = len(rows) > 1
    table = Table(
        title=Text(TITLES[kind], "bold cyan"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        header_style="dim",
        footer_style="bold",
        show_footer=has_footer,
        show_edge=False,
        collapse_padding=True,
    )
    columns = [column for column in COLUMNS[kind] if is_wide or not column.is_optional]
    for column in columns:
        may_shrink = column in (SERVER, MODEL)
        table.add_column(
            column.title,
            column.show(total) if has_footer else "",
            justify="left" if may_shrink or column.show is _capacity else "right",
            no_wrap=True,
            min_width=5 if may_shrink else BAR_CELLS + 6 if column.show is _capacity else len(column.title),
        )
    for row in rows:
        table.add_row(*(column.show(row) for column in columns))
    return table


def _server(row: Figures) -> Text:
    if not row.address:
        return Text(row.state)
    style = STATE_STYLES.get(row.state, "green")
    state = "" if row.state == SERVING else f" {row.state}"
    return Text.assemble(("● ", style), blanked(row.address), (state, style))


def _capacity(row: Figures) -> Text:
    if row.capacity is None:
        return Text(str(row.sessions))
    share = min(1.0, row.sessions / row.capacity) if row.capacity else 1.0
    style = "red" if share >= FULL else "yellow" if share >= BUSY else "green"
    eighths = round(share * BAR_CELLS * 8)
    bar = "█" * (eighths // 8) + (EIGHTHS[eighths % 8] if eighths % 8 else "")
    return Text.assemble((f"{bar:<{BAR_CELLS}}", f"{style} on grey23"), f" {row.sessions:>2}/{row.capacity}")


def _number(
    read: Callable[[Figures], float | None], form: str, scale: float = 1
) -> Callable[[Figures], Text]:
    def show(row: Figures) -> Text:
        value = read(row)
        return Text("-", "dim") if value is None else Text(format(value * scale, form))

    return show


def _alarming(read: Callable[[Figures], int | None]) -> Callable[[Figures], Text]:
    def show(row: Figures) -> Text:
        value = read(row) or 0
        return Text(str(value), "bold red" if value else "dim")

    return show


SERVER = Column("server", _server)
MODEL = Column("model", lambda row: Text(blanked(row.model)), is_optional=True)
TOKENS = (
    Column("audio", _number(lambda row: row.streams, ".1f"), is_optional=True),
    Column("tok/s", _number(lambda row: row.tokens_per_s, ".0f")),
    Column("tok/pass", _number(lambda row: row.tokens_per_forward, ".2f"), is_optional=True),
    Column("accept", _number(lambda row: row.acceptance, ".0%")),
)
FAILED = Column("fail", _alarming(lambda row: row.failed))
ERRORS = Column("err/s", _number(lambda row: row.errors_per_s or 0, ".2f"), is_optional=True)

COLUMNS = {
    TARGET: (
        SERVER,
        MODEL,
        Column("slots", _capacity),
        *TOKENS,
        Column("batch", _number(lambda row: row.sessions_per_forward, ".1f"), is_optional=True),
        Column("pass ms", _number(lambda row: row.forward_s, ".1f", 1e3)),
        Column("queue ms", _number(lambda row: row.queue_s, ".1f", 1e3)),
        FAILED,
        ERRORS,
    ),
    DRAFT: (
        SERVER,
        MODEL,
        Column("sessions", _capacity),
        *TOKENS,
        Column("RTT ms", _number(lambda row: row.round_trip_s, ".1f", 1e3)),
        Column("text s", _number(lambda row: row.latency_s, ".2f")),
        Column("resumed", _number(lambda row: row.resumed or 0, "d"), is_optional=True),
        Column("diff", _alarming(lambda row: row.differences)),
        FAILED,
        ERRORS,
    ),
    GATEWAY: (
        SERVER,
        Column("open", _capacity),
        Column("req/s", _number(lambda row: row.requests_per_s, ".2f")),
        *TOKENS,
        ERRORS,
    ),
}
