"""The probe that finds what a rank costs: reads the price book off-thread, and freezes the price.

A variable's price is known at once; a book is read by an errand and asked once it has arrived. What
was found stands in every record from then on, and nothing is ever priced anew.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import date, datetime, timezone

from costlens.account.price_book import (
    BUNDLED,
    MAX_BOOK_BYTES,
    PriceBook,
    parse_price_book,
    read_bundled,
)
from costlens.account.price_choice import Choice, PriceQuery, choose_price
from costlens.account.prices import (
    ask_price,
    count_unowned,
    resolve_energy_price,
    resolve_price,
)
from costlens.config import Config
from costlens.core.attempt_state import AttemptState
from costlens.core.clock import NS_PER_S
from costlens.core.errand import Errand
from costlens.core.price_records import PricePart
from costlens.core.records import RankPart
from costlens.errors import ConfigError, StorageError
from costlens.storage import files

__all__ = ["PriceProbe", "read_price_book"]

_PATIENCE_S = 1.0


class PriceProbe:
    """Fills ``price``, ``price_unknown`` and ``energy_price`` of the record.

    Args:
        config: The settings of the run.
        state: The attempt; its rank says what is driven.
    """

    name = "pricing"

    def __init__(self, config: Config, state: AttemptState) -> None:
        self._config = config
        self._state = state
        self._errand: Errand[PriceBook] | None = None
        self._is_told = False
        self._answer: tuple[PriceQuery, Choice] | None = None

    def load(self) -> None:
        """Import what a book's place needs."""
        book = self._config.price_book
        if book is not None and book != BUNDLED:
            files.load(book)

    def start(self) -> None:
        """Send for the book; waits up to a second, in which one on a local disk arrives."""
        book = self._config.price_book
        if book is not None and self._errand is None:
            self._errand = Errand("prices", lambda: read_price_book(book))
            self._errand.start()
            self._errand.wait(_PATIENCE_S)

    def sample(self, now_ns: int) -> None:
        """Look what is known of the GPUs by now, and say what went wrong with the book."""
        state = self._state
        if state.rank.num_gpus and not state.rank_facts.get("accelerator"):
            name = _product_name()
            if name is not None:
                state.rank_facts["accelerator"] = name
        unowned = count_unowned(state.describe_rank(), state.job)
        if unowned is not None:
            state.rank_facts["unowned_gpus"] = unowned
        self._tell()

    def contribute(self) -> Mapping[str, object]:
        """Return the price as it is known by now."""
        rank = self._state.describe_rank()
        price = resolve_price(self._config, rank, self._config.source_of, self._look_up(rank))
        known = isinstance(price, PricePart)
        return {
            "price": price if known else None,
            "price_unknown": None if known else price,
            "energy_price": resolve_energy_price(self._config, self._config.source_of),
        }

    def stop(self) -> None:
        """Leave an errand that is still under way to itself: it holds nothing up."""

    def _look_up(self, rank: RankPart) -> Choice | None:
        if self._errand is None or not self._errand.is_done:
            return None
        book = self._errand.result
        if book is None:
            source = self._config.source_of("price_book")
            return Choice(None, f"the price book of {source} could not be read; the log says why")
        query = ask_price(self._config, rank, launch_day(self._state), self._state.job)
        # The same question has the same answer: a book has a hundred thousand entries.
        if self._answer is None or self._answer[0] != query:
            self._answer = (query, choose_price(book, query))
        return self._answer[1]

    def _tell(self) -> None:
        if self._is_told or self._errand is None or not self._errand.is_done:
            return
        self._is_told = True
        if self._errand.error is not None:
            self._state.log.error(
                "costlens.prices.unreadable",
                message=f"costs stay unknown: {self._errand.error}",
            )


def read_price_book(url: str) -> PriceBook:
    """Return the book of a path or URL, or the bundled one; blocks on disk or network.

    Raises:
        ConfigError: If the place cannot be understood, or what it holds is no price book.
        StorageError: If it cannot be read, or is larger than 32 MiB.
    """
    if url == BUNDLED:
        return read_bundled()
    try:
        place = files.show_place(url)
    except ConfigError as error:
        raise ConfigError(f"price_book: {error}") from None
    try:
        content = files.read_bounded(url, MAX_BOOK_BYTES)
    except StorageError as error:
        raise StorageError(f"price_book: {error}") from error
    return parse_price_book(content, place)


def launch_day(state: AttemptState) -> date:
    """Return the day on which the attempt began, UTC."""
    unix_s = state.anchor.to_wall_ns(state.start_ns) / NS_PER_S
    return datetime.fromtimestamp(unix_s, timezone.utc).date()


def _product_name() -> str | None:
    """Return the name that all visible GPUs share; never sets CUDA up."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    names = {torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())}
    return names.pop() if len(names) == 1 else None
