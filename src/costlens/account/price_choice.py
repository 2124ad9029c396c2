"""Which entry of a price book a rank is charged at: the newest of those that fit it best.

Pure. Where several entries fit alike and their prices differ, there is no price: whoever guesses
between them would be wrong half of the time, so the candidates are named instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from costlens.account.accelerators import Accelerator, parse_accelerator
from costlens.account.money import format_money
from costlens.account.price_book import BookEntry, PriceBook
from costlens.setting_values import CapacityType

__all__ = ["Choice", "PriceQuery", "choose_price"]

_MAX_NAMED = 4
_SETTING_OF = {
    "instance_type": "COSTLENS_INSTANCE_TYPE",
    "provider": "COSTLENS_CLOUD_PROVIDER",
    "region": "COSTLENS_REGION",
}


@dataclass(frozen=True, slots=True)
class PriceQuery:
    """What is known of the machine that a rank runs on; None is unknown.

    Args:
        day: The day of the launch, UTC: later entries do not count.
        accelerator: Product name of the rank's GPUs; None on a rank without any.
        drives_gpu: Whether the rank drives a GPU, named or not.
        instance_type: The provider's name of the machine.
        provider: Who rents it out.
        region: A region or a zone of one.
        capacity_type: on_demand where nobody says otherwise.
    """

    day: date
    accelerator: str | None = None
    drives_gpu: bool = False
    instance_type: str | None = None
    provider: str | None = None
    region: str | None = None
    capacity_type: CapacityType | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen, or why nothing was.

    Args:
        entry: The entry; None where none fits or several do.
        rule: How it was chosen, or why there is none, in a sentence.
        candidates: The entries that fit alike, the newest first.
        book: The label of the book.
    """

    entry: BookEntry | None
    rule: str
    candidates: tuple[BookEntry, ...] = ()
    book: str = ""


def choose_price(book: PriceBook, query: PriceQuery) -> Choice:
    """Return the one entry that is the price of the rank's device or node, or why there is none.

    An entry fits where nothing that both sides name differs. Of those that fit, the ones that agree
    in most marks remain, and of these the newest of each; what then remains must have one price.
    Entries of different providers, places or machines do not compete where that is not known.

    Args:
        book: The book.
        query: What is known of the machine.
    """
    missing = _missing_name(query)
    if missing is not None:
        return Choice(None, f"price book {book.name}: {missing}")
    scored = _fitting(book.entries, query)
    if not scored:
        return Choice(None, f"price book {book.name} has no price of {_describe(query)}")
    candidates = _newest(_best(scored, query))
    prices = {(entry.amount, entry.unit, entry.currency) for entry in candidates}
    if len(prices) > 1:
        return Choice(None, _explain_ambiguity(book, candidates, query), candidates)
    kind = "list price" if book.is_list else "price"
    rule = f"the only {kind} that fits {_describe(query)}"
    if len(candidates) > 1:
        rule = f"{len(candidates)} entries of one {kind} fit {_describe(query)}"
    return Choice(candidates[0], rule, candidates, book.label)


def _missing_name(query: PriceQuery) -> str | None:
    if query.drives_gpu and query.accelerator is None and query.instance_type is None:
        return "the product name of the GPU is not known; set COSTLENS_INSTANCE_TYPE"
    if not query.drives_gpu and query.instance_type is None:
        return "a node has a price by its instance type; set COSTLENS_INSTANCE_TYPE"
    return None


def _fitting(entries: Sequence[BookEntry], query: PriceQuery) -> list[tuple[int, BookEntry]]:
    device = None if query.accelerator is None else parse_accelerator(query.accelerator)
    products: dict[str, Accelerator] = {}
    scored = []
    for entry in entries:
        if entry.since is not None and entry.since > query.day:
            continue
        score = _score(entry, query, device, products)
        if score is not None:
            scored.append((score, entry))
    # A GPU's own price goes before that of the whole node.
    of_gpu = [pair for pair in scored if pair[1].unit == "gpu"]
    return of_gpu or scored


def _score(
    entry: BookEntry,
    query: PriceQuery,
    device: Accelerator | None,
    products: dict[str, Accelerator],
) -> int | None:
    """Return in how many marks an entry agrees with what is asked for; None if one differs."""
    if entry.unit == "gpu" and not query.drives_gpu:
        return None
    if entry.unit == "node" and query.instance_type is None:
        return None
    score = 0
    if device is not None and entry.accelerator is not None:
        if entry.accelerator not in products:
            products[entry.accelerator] = parse_accelerator(entry.accelerator)
        agreeing = device.match(products[entry.accelerator])
        if agreeing is None:
            return None
        score = 1 + agreeing
    elif entry.unit == "gpu" and query.instance_type is None:
        return None
    pairs = (
        (query.instance_type, entry.instance_type),
        (query.provider, entry.provider),
        (query.capacity_type or "on_demand", entry.capacity_type),
    )
    for asked, listed in pairs:
        if asked and listed:
            if asked.casefold() != listed.casefold():
                return None
            score += 1
    place = _score_place(entry, query.region)
    return None if place is None else score + place


def _score_place(entry: BookEntry, region: str | None) -> int | None:
    listed = [mark.casefold() for mark in (entry.zone, entry.region) if mark]
    if region is None or not listed:
        return 0
    return 1 if region.casefold() in listed else None


def _best(scored: Sequence[tuple[int, BookEntry]], query: PriceQuery) -> list[BookEntry]:
    """Return the entries that agree best, among those alike in what is not known of the machine."""
    open_marks = [mark for mark in _SETTING_OF if getattr(query, mark) is None]
    groups: dict[object, list[tuple[int, BookEntry]]] = {}
    for score, entry in scored:
        key = tuple((getattr(entry, mark) or "").casefold() for mark in open_marks)
        groups.setdefault(key, []).append((score, entry))
    best = {key: max(score for score, _ in group) for key, group in groups.items()}
    return [entry for key, group in groups.items() for score, entry in group if score == best[key]]


def _newest(entries: Sequence[BookEntry]) -> tuple[BookEntry, ...]:
    """Return the newest of the entries that are the price of the same thing."""
    newest: dict[object, list[BookEntry]] = {}
    for entry in entries:
        subject = (entry.unit, entry.subject.casefold())
        held = newest.setdefault(subject, [entry])
        age, held_age = entry.since or date.min, held[0].since or date.min
        if age > held_age:
            newest[subject] = [entry]
        elif age == held_age and entry is not held[0]:
            held.append(entry)
    kept = [entry for held in newest.values() for entry in held]
    return tuple(sorted(kept, key=lambda e: (-(e.since or date.min).toordinal(), e.amount)))


def _describe(query: PriceQuery) -> str:
    capacity = query.capacity_type or "on_demand, for nothing else is known,"
    marks = (query.accelerator, query.instance_type, query.provider, query.region)
    known = " ".join(mark for mark in marks if mark)
    return f"{known} {capacity} by {query.day.isoformat()}"


def _explain_ambiguity(book: PriceBook, candidates: Sequence[BookEntry], query: PriceQuery) -> str:
    shown = [
        f"{entry.subject} {format_money(entry.amount)} {entry.currency}"
        for entry in candidates[:_MAX_NAMED]
    ]
    more = len(candidates) - len(shown)
    named = "; ".join(shown) + (f"; and {more} more" if more else "")
    telling = [
        setting
        for mark, setting in _SETTING_OF.items()
        if getattr(query, mark) is None and len({getattr(e, mark) for e in candidates}) > 1
    ]
    advice = f"; set {' or '.join(telling)} to tell them apart" if telling else ""
    return f"price book {book.name} has several prices that fit: {named}{advice}"
