"""The copy of the training state that the training thread pays for: into memory that is reused.

On a CPU it is one row of copies into a buffer that stays mapped; on CUDA the buffer is pinned, the
copies run on a stream of their own, and only the next change of what is being copied waits for
them. Hashing and writing happen elsewhere, on the bytes of :class:`Snapshot`.
"""

from __future__ import annotations

import io
import pickle
from dataclasses import dataclass, field
from typing import Any

import torch

from costlens.errors import CheckpointError
from costlens.protect import sharded
from costlens.protect.packing import Join, Packing, Slot, pack, unpack, view_slot

__all__ = ["HostBuffer", "Snapshot", "load_tree"]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A state as it was, in host memory.

    Args:
        skeleton: The tree around the tensors and where each lies, as ``torch.save`` writes it.
        buffer: Flat bytes; they belong to the :class:`HostBuffer` and are overwritten by its next
            snapshot.
        slots: Where each tensor lies in the buffer.
    """

    skeleton: bytes
    buffer: torch.Tensor
    slots: tuple[Slot, ...] = ()
    _copied: list[torch.cuda.Event] = field(default_factory=list)

    @property
    def num_bytes(self) -> int:
        """Return the bytes of the tensors."""
        return self.buffer.numel()

    def view(self) -> memoryview:
        """Return the bytes, without a copy, once all of them have arrived; not the training thread.

        On CUDA it waits for the copies, up to as long as they take.
        """
        for event in self._copied:
            event.synchronize()
        return self.buffer.numpy().data


class HostBuffer:
    """Memory for one snapshot at a time, reused by the next.

    Its size is that of the largest state so far; a state that outgrows it gets new memory, and the
    first copy into new memory costs several times what later ones do.
    """

    def __init__(self) -> None:
        self._buffer: torch.Tensor | None = None
        self._views: tuple[tuple[Slot, ...], list[torch.Tensor]] = ((), [])
        self._streams: dict[torch.device, torch.cuda.Stream] = {}
        self._copied: list[tuple[torch.device, torch.cuda.Event]] = []

    def take(self, tree: Any) -> Snapshot:  # noqa: ANN401 - any tree
        """Return a snapshot of the tree; training thread, one copy of its bytes (CPU).

        On CUDA the copies are enqueued and nothing waits; call :meth:`hold` before anything
        changes the tensors. The snapshot before this one must not be needed any more.

        Args:
            tree: What :func:`costlens.protect.packing.pack` takes.

        Raises:
            CheckpointError: If a part of it would not load with ``weights_only=True``.
        """
        packing = pack(tree)
        cuda = sorted({t.device for t in packing.tensors if t.device.type == "cuda"}, key=str)
        buffer = self._provide(packing.num_bytes, pinned=bool(cuda))
        targets = self._targets(packing, buffer)
        if cuda:
            self._copy_aside(packing, targets, cuda)
        elif targets:
            with torch.no_grad():
                torch._foreach_copy_(targets, list(packing.tensors))
        copied = [event for _, event in self._copied] if cuda else []
        return Snapshot(_dump(packing), buffer, packing.slots, copied)

    def hold(self) -> None:
        """Let the device's work from here on wait for the copies; training thread, about 5 µs.

        The host goes on. Does nothing on a CPU, or where nothing is being copied.
        """
        for device, event in self._copied:
            torch.cuda.current_stream(device).wait_event(event)
        self._copied.clear()

    def _provide(self, num_bytes: int, *, pinned: bool) -> torch.Tensor:
        held = self._buffer
        if held is None or held.numel() < num_bytes or (pinned and not held.is_pinned()):
            self._views = ((), [])
            self._buffer = held = None  # the old memory goes before the new one comes
            self._buffer = held = torch.empty(num_bytes, dtype=torch.uint8, pin_memory=pinned)
        return held[:num_bytes]

    def _targets(self, packing: Packing, buffer: torch.Tensor) -> list[torch.Tensor]:
        if self._views[0] != packing.slots:
            self._views = (packing.slots, [view_slot(slot, buffer) for slot in packing.slots])
        return self._views[1]

    def _copy_aside(
        self, packing: Packing, targets: list[torch.Tensor], devices: list[torch.device]
    ) -> None:
        # Behind everything enqueued so far, and beside everything enqueued from now on.
        for device in devices:
            stream = self._streams.get(device)
            if stream is None:
                stream = self._streams[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            stream.wait_stream(torch.cuda.current_stream(device))
            pairs = [
                (target, tensor)
                for target, tensor in zip(targets, packing.tensors, strict=True)
                if tensor.device == device
            ]
            with torch.cuda.stream(stream), torch.no_grad():
                for target, tensor in pairs:
                    target.copy_(tensor, non_blocking=True)
                    # The allocator must not hand the memory out before the copy has read it.
                    tensor.record_stream(stream)
                event = torch.cuda.Event()  # type: ignore[no-untyped-call]
                event.record(stream)
            self._copied.append((device, event))
        with torch.no_grad():
            for target, tensor in zip(targets, packing.tensors, strict=True):
                if tensor.device.type != "cuda":
                    target.copy_(tensor)


def load_tree(skeleton: bytes, buffer: torch.Tensor, join: Join = sharded.join) -> Any:  # noqa: ANN401 - any tree
    """Return the state tree of a snapshot, around views of ``buffer``.

    Args:
        skeleton: ``Snapshot.skeleton``; loaded with ``weights_only=True`` whatever it says.
        buffer: The bytes of the tensors, verified by the caller.
        join: Makes what stands for a tensor that was spread over the ranks.

    Raises:
        CheckpointError: If skeleton and buffer do not fit together, or the skeleton holds what
            ``weights_only`` refuses.
    """
    sharded.prepare(skeleton)
    try:
        loaded = torch.load(io.BytesIO(skeleton), weights_only=True)
        slots = tuple(Slot(*slot) for slot in loaded["slots"])
        tree = loaded["tree"]
    except (pickle.UnpicklingError, RuntimeError, TypeError, KeyError, EOFError) as error:
        # Not its text: it advises to load what is not safe.
        raise CheckpointError(
            f"the description of the state cannot be loaded safely ({type(error).__name__})"
        ) from error
    return unpack(tree, slots, buffer, join)


def _dump(packing: Packing) -> bytes:
    target = io.BytesIO()
    slots = [(slot.dtype, slot.shape, slot.offset, slot.num_bytes) for slot in packing.slots]
    torch.save({"slots": slots, "tree": packing.skeleton}, target)
    return target.getvalue()
