"""What a simulated job is: one flat value, so that a cause is a change of some of its fields."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Job"]

_LAUNCH_EACH_S = 7e-6
_QUEUE_KERNELS = 1024
"""How many launches the driver takes before it lets the host wait."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A training job, its machines and its model; seconds, bytes, and counts per rank.

    Args:
        seed: Of all that is drawn while it runs.
        duration_s: How long it runs after start-up.
        device: ``cpu`` or ``cuda``.
        accelerator: Name of the device.
        num_ranks: Ranks of the job.
        ranks_per_node: Ranks on one node.
        startup_s: Process start to the first fetch, without the wait for the other ranks.
        gang_wait_s: Wait of a rank for the last one to come; that one waits for nobody.
        first_iteration_s: What the first iteration takes longer than the others.
        batch_size: Samples of a batch.
        sample_tokens: Tokens of a sample.
        fill: Share of token positions that are not padding.
        length_spread: Spread (sigma of the logarithm) of the lengths of batches.
        work_s: Device time of one token position at full clocks.
        floor_s: Device time of an iteration that does not grow with the batch.
        launch_s: Time of the host to launch the kernels of an iteration.
        optimizer_s: Device time of the update.
        sm_active: Share of its multiprocessors that a device keeps active with a full batch.
        precision: What it computes in.
        precision_factor: By what the device time grows for it.
        skip_share: Share of the steps that overflow.
        num_syncs: Points in an iteration at which the host waits for the device.
        sync_s: Device time lost at such a point.
        clocks: Clock of each slow rank as a share of the others', by rank.
        throttle_reason: Why the driver says that clocks are down; None where they are not.
        comm_s: Time of the all-reduce.
        is_ddp: Whether torch's DDP reduces the gradients, which times itself now and then.
        comm_overlap: Share of the backward pass that the all-reduce may hide behind.
        num_workers: Worker processes of the loader; 0 loads in the main process.
        prefetch_factor: Batches that each worker has in the works.
        is_persistent: Whether workers outlive an epoch.
        pin_memory: Whether batches come in pinned memory.
        loader_cpus: CPUs that the workers of a rank may use.
        sample_cpu_s: CPU time to prepare a sample.
        sample_read_s: Latency of the reads of a sample.
        sample_wait_s: Time of a sample in a service that is neither CPU nor a counted read, and
            that serves one batch of a rank at a time.
        sample_bytes: Bytes that are read for a sample.
        storage_bytes_per_s: What the storage gives to all workers of a rank together.
        collate_s: CPU time to make a batch of its samples.
        worker_start_s: Start of a worker until it can load.
        epoch_setup_s: Work of the main process before the first batch of an epoch.
        epoch_batches: Batches of an epoch.
        is_lightning: Whether a Trainer leads the loop, which lets nobody time collating in workers.
        counts_reads: Whether reads go through the counted file system.
        copy_bytes: Bytes that go to the device for an iteration.
        host_step_s: Time of the host in an iteration for nothing in particular.
        logging_s: Time of the host in loggers, each iteration.
        callbacks_s: Time of the host in callbacks, each iteration.
        log_every: Iterations between two looks at a value on the device.
        save_every: Iterations between two saves; 0 is never.
        save_s: Time that training stands still for a save.
        validate_every: Iterations between two validations; 0 is never.
        validation_s: Time of a validation.
        retry_share: Share of iterations in which the allocator runs out of memory and starts again.
        retry_s: What that takes.
        memory_bytes: Memory that the device has.
        memory_used: Share of it that is taken.
        memory_held: Share of what is taken that tensors use.
        memory_growth: Growth of what is taken in an hour, as a share of the device's memory.
        compile_every: Iterations between two compilations; 0 is never.
        compile_s: What one takes.
        unowned_gpus: Allocated GPUs of a node that no rank drives.
        queue_s: Wait in the scheduler's queue.
        capacity_type: How the machines were bought.
        saves_itself: Whether costlens takes checkpoints.
        num_xids: Errors that a device of rank 0 has sent.
        num_uncorrected: Uncorrected memory errors of it.
        stop_at_s: When the whole job is stopped by a signal; None is never.
        stop_s: For how long.
        stops_in_wait: Whether that hits it in a fetch.
        has_power_cap: Whether the power limit holds the clocks down a little, as under full load.
        cold_iterations: Iterations until clocks and caches are warm.
    """

    seed: int
    duration_s: float = 300.0
    device: str = "cuda"
    accelerator: str = "NVIDIA H100 80GB HBM3"
    num_ranks: int = 1
    ranks_per_node: int = 8
    startup_s: float = 12.0
    gang_wait_s: float = 0.0
    first_iteration_s: float = 4.0
    batch_size: int = 32
    sample_tokens: float = 512.0
    fill: float = 0.95
    length_spread: float = 0.0
    work_s: float = 0.3 / (32 * 512 / 0.95)
    floor_s: float = 0.01
    launch_s: float = 0.03
    optimizer_s: float = 0.01
    sm_active: float = 0.88
    precision: str = "bf16"
    precision_factor: float = 1.0
    skip_share: float = 0.0
    num_syncs: int = 0
    sync_s: float = 0.0001
    clocks: tuple[tuple[int, float], ...] = ()
    throttle_reason: str | None = None
    comm_s: float = 0.0
    is_ddp: bool = True
    comm_overlap: float = 0.8
    num_workers: int = 4
    prefetch_factor: int = 2
    is_persistent: bool = True
    pin_memory: bool = True
    loader_cpus: int = 8
    sample_cpu_s: float = 0.005
    sample_read_s: float = 0.001
    sample_wait_s: float = 0.0
    sample_bytes: float = 1e5
    storage_bytes_per_s: float = 5e8
    collate_s: float = 0.005
    worker_start_s: float = 1.0
    epoch_setup_s: float = 0.02
    epoch_batches: int = 400
    is_lightning: bool = True
    counts_reads: bool = True
    copy_bytes: float = 5e6
    host_step_s: float = 0.002
    logging_s: float = 0.001
    callbacks_s: float = 0.001
    log_every: int = 50
    save_every: int = 0
    save_s: float = 0.0
    validate_every: int = 0
    validation_s: float = 0.0
    retry_share: float = 0.0
    retry_s: float = 0.2
    memory_bytes: float = 80 * 2**30
    memory_used: float = 0.7
    memory_held: float = 0.93
    memory_growth: float = 0.0
    compile_every: int = 0
    compile_s: float = 0.0
    unowned_gpus: int = 0
    queue_s: float = 60.0
    capacity_type: str = "on_demand"
    saves_itself: bool = False
    num_xids: int = 0
    num_uncorrected: int = 0
    stop_at_s: float | None = None
    stop_s: float = 0.0
    stops_in_wait: bool = False
    has_power_cap: bool = False
    cold_iterations: int = 5

    @property
    def is_cuda(self) -> bool:
        """Return whether the device runs beside the host."""
        return self.device == "cuda"

    @property
    def num_nodes(self) -> int:
        """Return how many nodes the ranks are on."""
        return -(-self.num_ranks // self.ranks_per_node)

    @property
    def slots(self) -> float:
        """Return the token positions of a batch of mean length."""
        return self.batch_size * self.sample_tokens / self.fill

    @property
    def device_s(self) -> float:
        """Return the device time of an iteration of mean length at full clocks."""
        work_s = self.slots * self.work_s * self.precision_factor
        return work_s + self.floor_s + self.optimizer_s

    @property
    def own_s(self) -> float:
        """Return the time of the host in an iteration for something else than launching."""
        return self.host_step_s + self.logging_s + self.callbacks_s

    @property
    def busy_s(self) -> float:
        """Return what the device needs for an iteration, all-reduce and sync points included."""
        return self.device_s + self.exposed_comm_s + self.num_syncs * self.sync_s

    @property
    def ahead_s(self) -> float:
        """Return by how much device time the host can be ahead: a full queue of kernels."""
        return self.device_s * _QUEUE_KERNELS * _LAUNCH_EACH_S / self.launch_s

    @property
    def hidden_s(self) -> float:
        """Return how much the host may do in an iteration without holding the device up."""
        if self.num_syncs > 0 or self.precision == "fp16" or not self.is_cuda:
            return 0.0  # they wait for one another in every iteration
        return max(0.0, min(self.ahead_s, self.busy_s - self.launch_s))

    @property
    def iteration_s(self) -> float:
        """Return what an iteration takes about, while nothing stands in its way."""
        shown_s = max(0.0, self.own_s - self.hidden_s)
        return max(self.busy_s, self.launch_s if self.is_cuda else 0.0) + shown_s

    @property
    def exposed_comm_s(self) -> float:
        """Return the part of the all-reduce that the backward pass does not hide."""
        if self.num_ranks == 1:
            return 0.0
        hidden_s = self.comm_overlap * 2 / 3 * (self.device_s - self.optimizer_s)
        return max(0.1 * self.comm_s, self.comm_s - hidden_s)

    @property
    def batch_load_s(self) -> float:
        """Return what loading a batch takes one worker that has the machine for itself."""
        sample_s = self.sample_cpu_s + self.sample_read_s + self.sample_wait_s
        pipe_s = self.batch_size * self.sample_bytes / self.storage_bytes_per_s
        return self.batch_size * sample_s + pipe_s + self.collate_s
