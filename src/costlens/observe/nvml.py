"""The probe of a rank's GPUs: finds them, reads them every 2 s, and keeps a meter for each.

Runs on the pipeline thread. A missing driver is silent unless the rank drives a GPU; a lost device
is told once when it goes and once when it is back, and shows no old values in between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from costlens.account.device_meter import DeviceMeter
from costlens.account.sharing import own_share
from costlens.core.attempt_state import AttemptState
from costlens.core.device_records import MAX_GPUS, GpuDriverPart
from costlens.observe.nvml_devices import (
    SIMULATED,
    Device,
    describe_driver,
    identify,
    list_devices,
)
from costlens.observe.nvml_events import XidWatch
from costlens.observe.nvml_fields import DeviceReader
from costlens.observe.nvml_session import CLOSED, LOST, Refusal, Session
from costlens.observe.placement.visible import read_visible
from costlens.observe.process import has_first_pid_space
from costlens.observe.torch_devices import ask_torch
from costlens.observe.visible_devices import (
    Selection,
    TorchDevice,
    choose_own,
    match_torch,
    select_visible,
)

__all__ = ["NvmlProbe"]

# In samples of 2 s.
_RETRY_EVERY = 30
_LOOK_EVERY = 5
_MAX_TOLD = 16
_MAX_PROBLEM = 100

# With these words nobody has to be told on a machine that just has no GPU.
_QUIET = frozenset({"no_library", "no_package", "no_driver", "not_found"})


class NvmlProbe:
    """Samples the GPUs of a rank.

    Args:
        state: The attempt; its rank says what it drives, its log takes notices.
        read_visible: Returns CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER.
        ask_torch: Returns torch's devices, or None while CUDA is not initialised.
        has_own_pids: Returns whether the driver's process ids mean our processes.
    """

    name = "nvml"

    def __init__(
        self,
        state: AttemptState,
        *,
        read_visible: Callable[[], tuple[str | None, str | None]] = read_visible,
        ask_torch: Callable[[], Sequence[TorchDevice] | None] = ask_torch,
        has_own_pids: Callable[[], bool] = has_first_pid_space,
    ) -> None:
        self._state = state
        self._read_visible = read_visible
        self._ask_torch = ask_torch
        self._has_own_pids = has_own_pids
        self._session = Session()
        self._driver = GpuDriverPart(reason="not_opened")
        self._meters: dict[str, DeviceMeter] = {}
        self._readers: dict[str, DeviceReader] = {}
        self._xids: XidWatch | None = None
        self._own: tuple[str, ...] = ()
        self._order: str | None = None
        self._problems: tuple[str, ...] = ()
        self._chosen_for: tuple[object, ...] | None = None
        self._knows_torch = False
        self._is_listed = False
        self._generation = 0
        self._num_samples = 0
        self._num_tries = 0
        self._num_told = 0
        self._has_told_absence = False

    def load(self) -> None:
        """Load the driver's library where there is one; calling thread."""
        self._session.load()

    def start(self) -> None:
        """Open the driver's library; it may wake the devices, which can take seconds."""
        self._num_tries = 1
        self._session.open()

    def sample(self, now_ns: int) -> None:
        """Read every device of the rank once; about 0.2 ms a device."""
        if not self._session.is_open and not self._reopen():
            self._tell_absence()
            return
        try:
            self._find()
            found = self._xids.take() if self._xids is not None else {}
            for uuid, reader in self._readers.items():
                self._read(reader, self._meters[uuid], now_ns, found.get(uuid, ()))
        except Refusal as refusal:
            self._close_driver(refusal.word)
            if refusal.word == CLOSED:
                self._session.expire()  # the next sample opens it again
            else:
                self._tell_absence()
        self._num_samples += 1
        if self._num_samples % _LOOK_EVERY == 0 and any(m.is_lost for m in self._current()):
            self._is_listed = False

    def contribute(self) -> Mapping[str, object]:
        """Return ``gpus`` and ``gpu_driver`` of the record."""
        return {
            "gpus": [meter.part() for meter in self._current()],
            "gpu_driver": self._driver.model_copy(update={"num_samples": self._num_samples}),
        }

    def stop(self) -> None:
        """Close the library; what was measured stays, and a second fit goes on from it."""
        for meter in self._meters.values():
            meter.interrupt()
        self._free_handles()
        self._session.close()

    def _current(self) -> list[DeviceMeter]:
        # A device that is ours no longer keeps its meter: it may be ours again.
        return [self._meters[uuid] for uuid in self._own if uuid in self._meters]

    def _reopen(self) -> bool:
        # Opening may take long, and fail for as long as the process lives: not at every sample.
        is_due = self._session.is_stale or self._num_tries % _RETRY_EVERY == 0
        self._num_tries += 1
        if is_due and self._session.open():
            return True
        self._close_driver(self._session.reason or CLOSED)
        return False

    def _close_driver(self, reason: str) -> None:
        for meter in self._meters.values():
            meter.interrupt()  # nothing that is shown is old
        self._driver = self._driver.model_copy(update={"state": "unavailable", "reason": reason})
        self._is_listed = False

    def _free_handles(self) -> None:
        for reader in self._readers.values():
            reader.close()
        if self._xids is not None:
            self._xids.close()
        self._drop_handles()

    def _drop_handles(self) -> None:
        self._readers.clear()
        self._xids = None
        self._is_listed = False

    def _find(self) -> None:
        """List the devices where they may have changed, and choose where what decides has."""
        rank, ordinals = self._state.rank, self._state.gpu_ordinals
        asked_for = (ordinals, rank.local_rank, rank.local_world_size)
        if self._session.generation != self._generation:
            self._drop_handles()  # they belong to an opening that is over
            self._generation = self._session.generation
        # What torch says once does not change, and asking again would take time.
        is_chosen = asked_for == self._chosen_for
        torch_devices = None if is_chosen and self._knows_torch else self._ask_torch()
        is_chosen = is_chosen and torch_devices is None
        if is_chosen and self._is_listed:
            return
        listed = list_devices(self._session)
        if not is_chosen:
            # Not again because a device is lost: without it the numbers would mean others.
            selection = self._select(listed, torch_devices)
            own = choose_own(selection.devices, ordinals, rank.local_rank, rank.local_world_size)
            self._own = tuple(dict.fromkeys(each.uuid for each in own[:MAX_GPUS]))
            self._chosen_for, self._knows_torch = asked_for, torch_devices is not None
            self._order, self._problems = selection.order, selection.problems
        self._describe()
        self._adopt({device.candidate.uuid: device for device in listed})
        self._is_listed = True

    def _select(
        self, listed: Sequence[Device], torch_devices: Sequence[TorchDevice] | None
    ) -> Selection:
        candidates = [device.candidate for device in listed]
        if torch_devices is not None and all(d.uuid or d.pci_id for d in torch_devices):
            return match_torch(torch_devices, candidates)
        return select_visible(*self._read_visible(), candidates)

    def _describe(self) -> None:
        problems = [problem[:_MAX_PROBLEM] for problem in self._problems[:_MAX_TOLD]]
        known = set(self._driver.problems)
        self._driver = describe_driver(self._session).model_copy(
            update={"order": self._order, "problems": problems}
        )
        for problem in problems:
            if problem not in known:
                self._tell("costlens.gpu.selection", f"{problem}; the other devices are sampled")

    def _adopt(self, listed: Mapping[str, Device]) -> None:
        """Have a meter for each device that is ours, and a reader where it is listed."""
        is_simulated = (self._driver.driver_version or "").startswith(SIMULATED)
        has_own_pids = self._has_own_pids()
        for uuid in [*self._readers]:
            # The handles of a device that was lost are not to be trusted again.
            if uuid not in self._own or uuid not in listed or self._meters[uuid].is_lost:
                self._readers.pop(uuid).close()
        is_renewed = self._xids is None
        for uuid in self._own:
            device = listed.get(uuid)
            if device is None:
                self._lose(uuid)
                continue
            if uuid not in self._meters:
                identity = identify(self._session, device, is_simulated=is_simulated)
                self._meters[uuid] = DeviceMeter(identity)
            if uuid not in self._readers:
                is_renewed = True
                self._readers[uuid] = DeviceReader(self._session, device, has_own_pids=has_own_pids)
        self._note_facts(is_simulated=is_simulated)
        if is_renewed:
            if self._xids is not None:
                self._xids.close()
            self._xids = XidWatch(self._session, [listed[u] for u in self._own if u in listed])

    def _lose(self, uuid: str) -> None:
        meter = self._meters.get(uuid)
        if meter is not None and not meter.is_lost:
            meter.lose()
            self._tell("costlens.gpu.lost", "the driver has lost a GPU", uuid=uuid)

    def _note_facts(self, *, is_simulated: bool) -> None:
        """Tell what the rank's price depends on."""
        facts, identities = self._state.rank_facts, [meter.identity for meter in self._current()]
        names = {identity.name for identity in identities if identity.name}
        if len(names) == 1:
            facts["accelerator"] = names.pop()
        if is_simulated:
            # Nobody computes on what does not exist: who sees it pays for it.
            facts["num_gpus"] = len(identities)
        share = own_share(identities)
        if share is not None:
            facts["gpu_share"] = share

    def _read(
        self, reader: DeviceReader, meter: DeviceMeter, now_ns: int, xids: tuple[int, ...]
    ) -> None:
        uuid = meter.identity.uuid
        for xid in xids:
            self._state.last_xid = xid
            self._tell("costlens.gpu.xid", f"the driver reports error {xid}", uuid=uuid, xid=xid)
        meter.hear(xids, None if self._xids is None else self._xids.absent.get(uuid))
        try:
            sample = reader.read(now_ns)
        except Refusal as refusal:
            if refusal.word not in LOST:
                raise
            self._lose(uuid)
            return
        if meter.is_lost:
            self._tell("costlens.gpu.recovered", "a GPU that was lost is back", uuid=uuid)
        meter.add(sample)

    def _tell_absence(self) -> None:
        reason = self._driver.reason
        is_expected = self._state.rank.num_gpus > 0 or self._state.rank.device == "cuda"
        if self._has_told_absence or (reason in _QUIET and not is_expected):
            return
        self._has_told_absence = True
        self._state.log.warning(
            "costlens.gpu.unavailable",
            reason=reason,
            message="the GPUs cannot be sampled; time and cost are measured all the same",
        )

    def _tell(self, event: str, message: str, **fields: object) -> None:
        # A device that fails again and again must not fill the log.
        self._num_told += 1
        if self._num_told <= _MAX_TOLD:
            self._state.log.warning(event, message=message, **fields)
