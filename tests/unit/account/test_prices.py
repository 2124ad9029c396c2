"""What an hour of a rank costs."""

from __future__ import annotations

from decimal import Decimal

from costlens.account.prices import count_unowned, resolve_price
from costlens.config import Config
from costlens.core.job_records import JobPart
from costlens.core.price_records import PricePart
from costlens.core.records import RankPart


def _rank(*, num_gpus: int = 0, local_world_size: int = 1) -> RankPart:
    return RankPart(
        rank=0, host_name="node", pid=1, num_gpus=num_gpus, local_world_size=local_world_size
    )


def _price(config: Config, rank: RankPart) -> PricePart:
    price = resolve_price(config, rank)
    assert isinstance(price, PricePart), price
    return price


def test_gpu_price_pays_for_the_gpus_the_rank_drives() -> None:
    """Four GPUs at 2.50 are charged four times, with the variable named as the source."""
    price = _price(Config(gpu_hour_price=Decimal("2.50")), _rank(num_gpus=4))
    assert (price.amount, price.unit, price.share) == ("2.50", "gpu", "4")
    assert price.source == "COSTLENS_GPU_HOUR_PRICE"


def test_node_price_is_shared_by_the_ranks_of_the_node() -> None:
    """Each of four ranks on a node pays a quarter."""
    price = _price(Config(node_hour_price=Decimal(8)), _rank(local_world_size=4))
    assert (price.amount, price.unit, price.share) == ("8", "node", "0.25")


def test_gpu_price_goes_before_the_node_price() -> None:
    """A rank with a GPU pays the GPU price alone, so nothing is charged twice."""
    config = Config(gpu_hour_price=Decimal(2), node_hour_price=Decimal(9), currency="EUR")
    assert _price(config, _rank(num_gpus=1)).unit == "gpu"
    assert _price(config, _rank()).unit == "node"
    assert _price(config, _rank()).currency == "EUR"


def test_source_names_the_argument_that_set_the_price() -> None:
    """The caller knows where a setting came from, and the record repeats it."""
    price = resolve_price(
        Config(gpu_hour_price=Decimal(2)), _rank(num_gpus=1), lambda name: f"argument {name}"
    )
    assert isinstance(price, PricePart)
    assert price.source == "argument gpu_hour_price"


def test_unset_price_is_unknown_with_one_hint() -> None:
    """C106: without a price there is no cost, and one line says what to set."""
    assert resolve_price(Config(), _rank()) == (
        "no price: set COSTLENS_NODE_HOUR_PRICE to the money a node costs per hour"
    )
    assert resolve_price(Config(), _rank(num_gpus=2)) == (
        "no price: set COSTLENS_GPU_HOUR_PRICE to the money a GPU costs per hour"
    )


def test_gpu_price_does_not_apply_to_a_rank_without_gpu() -> None:
    """A GPU price on a CPU rank is not silently zero: the reason names what would apply."""
    reason = resolve_price(Config(gpu_hour_price=Decimal(2)), _rank())
    assert isinstance(reason, str)
    assert "COSTLENS_GPU_HOUR_PRICE does not apply" in reason
    assert "COSTLENS_NODE_HOUR_PRICE" in reason


def test_price_of_zero_is_a_price() -> None:
    """C106: 0 is known and free."""
    assert _price(Config(gpu_hour_price=Decimal(0)), _rank(num_gpus=1)).amount == "0"


def test_tiny_price_stays_a_plain_decimal_string() -> None:
    """No exponent reaches a record: readers in other languages parse plain decimals."""
    price = _price(Config(node_hour_price=Decimal("1E-7")), _rank())
    assert price.amount == "0.0000001"


def test_shared_and_sliced_devices_cost_their_share() -> None:
    """What a rank pays for is its share of the devices, where that is known, not their number."""
    rank = _rank(num_gpus=1).model_copy(update={"gpu_share": "0.5"})
    assert _price(Config(gpu_hour_price=Decimal(2)), rank).share == "0.5"


def test_a_discount_stands_beside_the_price() -> None:
    """The list price stays readable; what comes off is told apart."""
    price = _price(Config(gpu_hour_price=Decimal(2), price_discount="0.15"), _rank(num_gpus=1))
    assert (price.amount, price.discount) == ("2", "0.15")


def test_devices_that_no_rank_drives_are_counted_once_a_node() -> None:
    """Local rank 0 books what is allocated beyond what the node's ranks drive; others do not."""
    job = JobPart(scheduler="slurm", num_gpus=8)
    rank = _rank(num_gpus=1, local_world_size=4)
    assert count_unowned(rank, job) == 4
    assert count_unowned(rank.model_copy(update={"local_rank": 1}), job) is None
    assert count_unowned(rank.model_copy(update={"gpu_share": "0.5"}), job) == 6
    assert count_unowned(_rank(num_gpus=2, local_world_size=8), job) == 0


def test_an_unknown_allocation_has_no_idle_devices_that_are_known() -> None:
    """Absent, not 0: nobody knows what else is paid for."""
    assert count_unowned(_rank(num_gpus=1), None) is None
    assert count_unowned(_rank(num_gpus=1), JobPart(scheduler="slurm")) is None
    assert count_unowned(_rank(), JobPart(scheduler="slurm", num_gpus=8)) is None
