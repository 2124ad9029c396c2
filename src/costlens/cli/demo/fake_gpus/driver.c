/*
 * A stand-in for NVIDIA's management library: GPUs that do not exist, told by a scenario.
 *
 * It answers the calls that costlens makes, with the layouts of nvml.h, so that the real
 * nvidia-ml-py runs on top of it. A scenario is a file of lines "key<TAB>kind<TAB>payload", written
 * by scenario.py: kind s is text; n, p and c are pairs "time:value", read as a line between points,
 * as steps, and as a counter that goes on growing when the scenario begins again. What a scenario
 * does not tell is NOT_SUPPORTED. Without a scenario the library behaves as if it were not there.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    TIMED_OUT = 10,
    LIBRARY_NOT_FOUND = 12,
    GPU_IS_LOST = 15,
};

enum { MAX_ENTRIES = 4096, MAX_DEVICES = 16, MAX_SLICES = 8, MAX_KEY = 128, MAX_NAMES = 128 };

typedef struct {
    char *key, kind, *text;
    int num_points;
    double *times, *values;
} Entry;

typedef struct Device {
    int index, slice; /* slice is -1 for a whole GPU */
    int next_xid;
} Device;

typedef struct {
    Device *device;
    double time;
} GpmSample;

static Entry entries[MAX_ENTRIES];
static Device boards[MAX_DEVICES], slices[MAX_DEVICES][MAX_SLICES];
static int is_loaded, num_inits;
static pid_t init_pid;
static double period_s, fixed_time_s = -1, started_s;
static struct { char name[64]; unsigned long calls; } called[MAX_NAMES];

/* The scenario: a table by key. */

static unsigned hash(const char *key) {
    unsigned value = 2166136261u;
    while (*key) value = (value ^ (unsigned char)*key++) * 16777619u;
    return value % MAX_ENTRIES;
}

static Entry *slot(const char *key) {
    unsigned at = hash(key);
    while (entries[at].key && strcmp(entries[at].key, key)) at = (at + 1) % MAX_ENTRIES;
    return &entries[at];
}

static Entry *find(const char *format, ...) {
    char key[MAX_KEY];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(key, sizeof key, format, arguments);
    va_end(arguments);
    Entry *entry = slot(key);
    return entry->key ? entry : NULL;
}

static void parse_points(Entry *entry, char *payload) {
    int room = 1;
    for (char *c = payload; *c; c++) room += *c == ' ';
    entry->times = calloc(room, sizeof(double));
    entry->values = calloc(room, sizeof(double));
    for (char *rest = payload, *pair; (pair = strsep(&rest, " "));) {
        char *value = strchr(pair, ':');
        if (!value) continue;
        entry->times[entry->num_points] = strtod(pair, NULL);
        entry->values[entry->num_points++] = strtod(value + 1, NULL);
    }
}

static double clock_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

static double now_s(void) { return fixed_time_s >= 0 ? fixed_time_s : clock_s() - started_s; }

static double read_line(const Entry *entry, double time) {
    int low = 0, high = entry->num_points - 1;
    if (high < 0) return 0;
    if (time <= entry->times[0]) return entry->values[0];
    if (time >= entry->times[high]) return entry->values[high];
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (entry->times[middle] <= time) low = middle;
        else high = middle;
    }
    if (entry->kind == 'p') return entry->values[low];
    double share = (time - entry->times[low]) / (entry->times[high] - entry->times[low]);
    return entry->values[low] + share * (entry->values[high] - entry->values[low]);
}

static double read_at(const Entry *entry, double time) {
    if (period_s <= 0 || time < period_s) return read_line(entry, time);
    double rounds = (double)(long)(time / period_s);
    double value = read_line(entry, time - rounds * period_s);
    if (entry->kind == 'c') value += rounds * (read_line(entry, period_s) - read_line(entry, 0));
    return value;
}

/* What the tests and the demo call. */

void stand_in_unload(void) {
    for (int at = 0; at < MAX_ENTRIES; at++) {
        free(entries[at].key);
        free(entries[at].text);
        free(entries[at].times);
        free(entries[at].values);
    }
    memset(entries, 0, sizeof entries);
    memset(called, 0, sizeof called);
    for (int index = 0; index < MAX_DEVICES; index++) boards[index].next_xid = 0;
    is_loaded = 0;
    period_s = 0;
}

int stand_in_load(const char *path) {
    FILE *file = fopen(path, "r");
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    if (!file) return -1;
    stand_in_unload();
    for (int count = 0; count < MAX_ENTRIES / 2 && (length = getline(&line, &room, file)) > 0; count++) {
        if (line[length - 1] == '\n') line[length - 1] = 0;
        char *rest = line, *key = strsep(&rest, "\t"), *kind = strsep(&rest, "\t");
        if (!kind || !rest) continue;
        Entry *entry = slot(key);
        if (entry->key) continue;
        entry->key = strdup(key);
        entry->kind = *kind;
        if (*kind == 's') entry->text = strdup(rest);
        else parse_points(entry, rest);
    }
    free(line);
    fclose(file);
    Entry *period = find("period_s");
    period_s = period ? period->values[0] : 0;
    started_s = clock_s();
    is_loaded = 1;
    return 0;
}

void stand_in_set_time(double time_s) { fixed_time_s = time_s; }

unsigned long stand_in_num_calls(const char *name) {
    for (int at = 0; at < MAX_NAMES && called[at].name[0]; at++)
        if (!strcmp(called[at].name, name)) return called[at].calls;
    return 0;
}

__attribute__((constructor)) static void begin(void) {
    for (int index = 0; index < MAX_DEVICES; index++) {
        boards[index] = (Device){index, -1, 0};
        for (int slice = 0; slice < MAX_SLICES; slice++) slices[index][slice] = (Device){index, slice, 0};
    }
    const char *path = getenv("FAKE_NVML_SCENARIO");
    if (path) stand_in_load(path);
}

/* Every call of the library goes through here first. */

static void count(const char *name) {
    int at = 0;
    while (at < MAX_NAMES - 1 && called[at].name[0] && strcmp(called[at].name, name)) at++;
    snprintf(called[at].name, sizeof called[at].name, "%s", name);
    called[at].calls++;
}

static Entry *field(const Device *device, const char *name) {
    if (device->slice < 0) return find("device.%d.%s", device->index, name);
    return find("device.%d.mig.%d.%s", device->index, device->slice, name);
}

static int error_of(const Entry *entry) { return entry ? (int)read_at(entry, now_s()) : SUCCESS; }

static int enter(const char *name, const Device *device) {
    count(name);
    if (!is_loaded || num_inits == 0 || init_pid != getpid()) return UNINITIALIZED;
    int error = error_of(find("error.%s", name));
    if (error || !device) return error;
    Entry *lost = find("device.%d.lost", device->index);
    if (lost && read_at(lost, now_s()) > 0) return GPU_IS_LOST;
    char key[MAX_KEY];
    snprintf(key, sizeof key, "error.%s", name);
    return error_of(field(device, key));
}

static int number(const char *function, const Device *device, const char *name, double *value) {
    int error = enter(function, device);
    if (error) return error;
    Entry *entry = field(device, name);
    if (!entry) return NOT_SUPPORTED;
    *value = read_at(entry, now_s());
    return SUCCESS;
}

static int number32(const char *function, const Device *device, const char *name, unsigned *out) {
    double value;
    int error = number(function, device, name, &value);
    if (!error) *out = (unsigned)(value + 0.5);
    return error;
}

static int number64(const char *function, const Device *device, const char *name, uint64_t *out) {
    double value;
    int error = number(function, device, name, &value);
    if (!error) *out = (uint64_t)(value + 0.5);
    return error;
}

static int text(int error, const Entry *entry, char *out, unsigned room) {
    if (error) return error;
    if (!entry) return NOT_SUPPORTED;
    if (strlen(entry->text) >= room) return INSUFFICIENT_SIZE;
    strcpy(out, entry->text);
    return SUCCESS;
}

/* The library itself. */

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    count("nvmlInitWithFlags");
    if (!is_loaded) return LIBRARY_NOT_FOUND;
    int error = error_of(find("error.nvmlInitWithFlags"));
    if (error) return error;
    if (init_pid != getpid()) num_inits = 0;
    init_pid = getpid();
    num_inits++;
    return SUCCESS;
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void) {
    int error = enter("nvmlShutdown", NULL);
    if (!error) num_inits--;
    return error;
}

const char *nvmlErrorString(int error) { return error ? "an error of the stand-in" : "success"; }

int nvmlSystemGetDriverVersion(char *out, unsigned room) {
    return text(enter("nvmlSystemGetDriverVersion", NULL), find("driver_version"), out, room);
}

int nvmlSystemGetNVMLVersion(char *out, unsigned room) {
    return text(enter("nvmlSystemGetNVMLVersion", NULL), find("nvml_version"), out, room);
}

int nvmlSystemGetCudaDriverVersion_v2(int *out) {
    int error = enter("nvmlSystemGetCudaDriverVersion_v2", NULL);
    Entry *entry = find("cuda_version");
    if (!error && !entry) return NOT_SUPPORTED;
    if (!error) *out = (int)read_at(entry, now_s());
    return error;
}

static int count_devices(void) {
    int num = 0;
    while (num < MAX_DEVICES && find("device.%d.uuid", num)) num++;
    return num;
}

int nvmlDeviceGetCount_v2(unsigned *out) {
    int error = enter("nvmlDeviceGetCount_v2", NULL);
    if (!error) *out = (unsigned)count_devices();
    return error;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **out) {
    int error = enter("nvmlDeviceGetHandleByIndex_v2", NULL);
    if (error) return error;
    if ((int)index >= count_devices()) return INVALID_ARGUMENT;
    error = enter("nvmlDeviceGetHandleByIndex_v2", &boards[index]);
    if (!error) *out = &boards[index];
    return error;
}

int nvmlDeviceGetUUID(Device *device, char *out, unsigned room) {
    return text(enter("nvmlDeviceGetUUID", device), field(device, "uuid"), out, room);
}

int nvmlDeviceGetName(Device *device, char *out, unsigned room) {
    return text(enter("nvmlDeviceGetName", device), field(device, "name"), out, room);
}

int nvmlDeviceGetSerial(Device *device, char *out, unsigned room) {
    return text(enter("nvmlDeviceGetSerial", device), field(device, "serial"), out, room);
}

typedef struct {
    char legacy[16];
    unsigned domain, bus, device, pci_device, pci_subsystem;
    char bus_id[32];
} PciInfo;

int nvmlDeviceGetPciInfo_v3(Device *device, PciInfo *out) {
    int error = enter("nvmlDeviceGetPciInfo_v3", device);
    Entry *entry = find("device.%d.pci_id", device->index);
    if (error) return error;
    if (!entry) return NOT_SUPPORTED;
    memset(out, 0, sizeof *out);
    snprintf(out->bus_id, sizeof out->bus_id, "%s", entry->text);
    sscanf(entry->text, "%x:%x:%x", &out->domain, &out->bus, &out->device);
    snprintf(out->legacy, sizeof out->legacy, "%04X:%02X:%02X.0", out->domain & 0xffff,
             out->bus & 0xff, out->device & 0xff);
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(Device *device, unsigned out[2]) {
    int error = number32("nvmlDeviceGetUtilizationRates", device, "utilization_percent", &out[0]);
    Entry *memory = field(device, "memory_utilization_percent");
    if (!error) out[1] = memory ? (unsigned)(read_at(memory, now_s()) + 0.5) : 0;
    return error;
}

static int read_memory(const char *function, Device *device, uint64_t *total, uint64_t *used) {
    int error = number64(function, device, "memory_total_bytes", total);
    Entry *entry = field(device, "memory_used_bytes");
    if (error) return error;
    if (!entry) return NOT_SUPPORTED;
    *used = (uint64_t)(read_at(entry, now_s()) + 0.5);
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(Device *device, uint64_t out[3]) {
    int error = read_memory("nvmlDeviceGetMemoryInfo", device, &out[0], &out[2]);
    if (!error) out[1] = out[0] - out[2];
    return error;
}

typedef struct {
    unsigned version;
    uint64_t total, reserved, available, used;
} MemoryV2;

int nvmlDeviceGetMemoryInfo_v2(Device *device, MemoryV2 *out) {
    int error = read_memory("nvmlDeviceGetMemoryInfo_v2", device, &out->total, &out->used);
    out->reserved = 0;
    if (!error) out->available = out->total - out->used;
    return error;
}

int nvmlDeviceGetPowerUsage(Device *device, unsigned *out) {
    return number32("nvmlDeviceGetPowerUsage", device, "power_milliwatts", out);
}

int nvmlDeviceGetEnforcedPowerLimit(Device *device, unsigned *out) {
    return number32("nvmlDeviceGetEnforcedPowerLimit", device, "power_limit_milliwatts", out);
}

int nvmlDeviceGetTotalEnergyConsumption(Device *device, uint64_t *out) {
    return number64("nvmlDeviceGetTotalEnergyConsumption", device, "energy_millijoules", out);
}

int nvmlDeviceGetTemperature(Device *device, int sensor, unsigned *out) {
    (void)sensor;
    return number32("nvmlDeviceGetTemperature", device, "temperature_celsius", out);
}

int nvmlDeviceGetClockInfo(Device *device, int domain, unsigned *out) {
    const char *name = domain == 2 ? "memory_clock_megahertz" : "sm_clock_megahertz";
    return number32("nvmlDeviceGetClockInfo", device, name, out);
}

int nvmlDeviceGetMaxClockInfo(Device *device, int domain, unsigned *out) {
    const char *name = domain == 2 ? "memory_clock_max_megahertz" : "sm_clock_max_megahertz";
    return number32("nvmlDeviceGetMaxClockInfo", device, name, out);
}

int nvmlDeviceGetCurrentClocksEventReasons(Device *device, uint64_t *out) {
    return number64("nvmlDeviceGetCurrentClocksEventReasons", device, "clock_reasons", out);
}

int nvmlDeviceGetCurrentClocksThrottleReasons(Device *device, uint64_t *out) {
    return number64("nvmlDeviceGetCurrentClocksThrottleReasons", device, "clock_reasons", out);
}

typedef struct {
    uint32_t field, scope;
    int64_t timestamp, latency;
    uint32_t type, result;
    union {
        uint64_t whole;
        uint32_t word;
    } value;
} FieldValue;

static const char *field_name(uint32_t id) {
    switch (id) {
    case 38: return "nvlink_crc_errors";
    case 82: return "memory_temperature_celsius";
    case 138: return "nvlink_transmit_kibibytes";
    case 139: return "nvlink_receive_kibibytes";
    case 197: return "pcie_transmit_bytes";
    case 198: return "pcie_receive_bytes";
    default: return NULL;
    }
}

int nvmlDeviceGetFieldValues(Device *device, int num, FieldValue *values) {
    int error = enter("nvmlDeviceGetFieldValues", device);
    if (error) return error;
    for (int at = 0; at < num; at++) {
        const char *name = field_name(values[at].field);
        char key[MAX_KEY];
        snprintf(key, sizeof key, "error.field.%u", values[at].field);
        Entry *entry = name ? field(device, name) : NULL;
        int refused = error_of(field(device, key));
        values[at].result = refused ? refused : entry ? SUCCESS : NOT_SUPPORTED;
        values[at].value.whole = 0;
        values[at].type = values[at].field == 82 ? 1 : 3;
        if (values[at].result == SUCCESS) {
            uint64_t whole = (uint64_t)(read_at(entry, now_s()) + 0.5);
            if (values[at].type == 1) values[at].value.word = (uint32_t)whole;
            else values[at].value.whole = whole;
        }
    }
    return SUCCESS;
}

int nvmlDeviceGetTotalEccErrors(Device *device, int type, int counter, uint64_t *out) {
    (void)counter;
    const char *name = type == 0 ? "ecc_corrected" : "ecc_uncorrected";
    return number64("nvmlDeviceGetTotalEccErrors", device, name, out);
}

int nvmlDeviceGetRemappedRows(Device *device, unsigned *corrected, unsigned *uncorrected,
                              unsigned *is_pending, unsigned *has_failed) {
    int error = number32("nvmlDeviceGetRemappedRows", device, "rows_corrected", corrected);
    if (error) return error;
    const char *names[] = {"rows_uncorrected", "rows_pending", "rows_failed"};
    unsigned *outs[] = {uncorrected, is_pending, has_failed};
    for (int at = 0; at < 3; at++) {
        Entry *entry = field(device, names[at]);
        *outs[at] = entry ? (unsigned)read_at(entry, now_s()) : 0;
    }
    return SUCCESS;
}

int nvmlDeviceGetPcieReplayCounter(Device *device, unsigned *out) {
    return number32("nvmlDeviceGetPcieReplayCounter", device, "pcie_replays", out);
}

/* Events: the error codes (XIDs) of a device, each delivered once. */

typedef struct {
    Device *device;
    uint64_t type, data;
    unsigned gpu_instance, compute_instance;
} EventData;

typedef struct {
    Device *watched[MAX_DEVICES];
    int num_watched;
} EventSet;

int nvmlEventSetCreate(EventSet **out) {
    int error = enter("nvmlEventSetCreate", NULL);
    if (!error) *out = calloc(1, sizeof(EventSet));
    return error;
}

int nvmlDeviceRegisterEvents(Device *device, uint64_t types, EventSet *set) {
    int error = enter("nvmlDeviceRegisterEvents", device);
    if (error) return error;
    if (!(types & 8)) return INVALID_ARGUMENT;
    if (!field(device, "xids")) return NOT_SUPPORTED;
    if (set->num_watched < MAX_DEVICES) set->watched[set->num_watched++] = device;
    return SUCCESS;
}

int nvmlEventSetWait_v2(EventSet *set, EventData *out, unsigned timeout_ms) {
    (void)timeout_ms;
    int error = enter("nvmlEventSetWait_v2", NULL);
    if (error) return error;
    for (int at = 0; at < set->num_watched; at++) {
        Device *device = set->watched[at];
        Entry *entry = field(device, "xids");
        if (!entry || device->next_xid >= entry->num_points) continue;
        if (entry->times[device->next_xid] > now_s()) continue;
        uint64_t xid = (uint64_t)entry->values[device->next_xid++];
        *out = (EventData){device, 8, xid, 0xffffffffu, 0xffffffffu};
        return SUCCESS;
    }
    return TIMED_OUT;
}

int nvmlEventSetFree(EventSet *set) {
    free(set);
    return enter("nvmlEventSetFree", NULL);
}

/* GPM: what the units of a device did between two samples. */

typedef struct {
    unsigned version, is_supported;
} GpmSupport;

typedef struct {
    unsigned id, result;
    double value;
    char *short_name, *long_name, *unit;
} GpmMetric;

typedef struct {
    unsigned version, num_metrics;
    GpmSample *first, *second;
    GpmMetric metrics[];
} GpmMetrics;

int nvmlGpmQueryDeviceSupport(Device *device, GpmSupport *out) {
    int error = enter("nvmlGpmQueryDeviceSupport", device);
    if (!error) out->is_supported = field(device, "activity_sm") != NULL;
    return error;
}

int nvmlGpmSampleAlloc(GpmSample **out) {
    int error = enter("nvmlGpmSampleAlloc", NULL);
    if (!error) *out = calloc(1, sizeof(GpmSample));
    return error;
}

int nvmlGpmSampleFree(GpmSample *sample) {
    free(sample);
    return enter("nvmlGpmSampleFree", NULL);
}

int nvmlGpmSampleGet(Device *device, GpmSample *sample) {
    int error = enter("nvmlGpmSampleGet", device);
    if (!error) *sample = (GpmSample){device, now_s()};
    return error;
}

static unsigned instance_of(const Device *device, const char *name) {
    Entry *entry = field(device, name);
    return entry ? (unsigned)read_at(entry, 0) : 0;
}

int nvmlGpmMigSampleGet(Device *device, unsigned gpu_instance, GpmSample *sample) {
    int error = enter("nvmlGpmMigSampleGet", device);
    if (error) return error;
    for (int slice = 0; slice < MAX_SLICES; slice++) {
        Device *cut = &slices[device->index][slice];
        if (field(cut, "uuid") && instance_of(cut, "gpu_instance") == gpu_instance) {
            *sample = (GpmSample){cut, now_s()};
            return SUCCESS;
        }
    }
    return INVALID_ARGUMENT;
}

static double mean_between(const Entry *entry, double begin, double end) {
    enum { NUM_STEPS = 256 };
    double sum = 0;
    for (int step = 0; step < NUM_STEPS; step++)
        sum += read_at(entry, begin + (end - begin) * (step + 0.5) / NUM_STEPS);
    return sum / NUM_STEPS;
}

int nvmlGpmMetricsGet(GpmMetrics *asked) {
    int error = enter("nvmlGpmMetricsGet", NULL);
    if (error) return error;
    if (asked->first->device != asked->second->device) return INVALID_ARGUMENT;
    for (unsigned at = 0; at < asked->num_metrics; at++) {
        GpmMetric *metric = &asked->metrics[at];
        const char *name = metric->id == 2    ? "activity_sm"
                           : metric->id == 5  ? "activity_tensor"
                           : metric->id == 10 ? "activity_dram"
                                              : "none";
        Entry *entry = field(asked->first->device, name);
        metric->result = entry ? SUCCESS : NOT_SUPPORTED;
        if (entry)
            metric->value = 100 * mean_between(entry, asked->first->time, asked->second->time);
    }
    return SUCCESS;
}

/* MIG: slices of a device. */

int nvmlDeviceGetMigMode(Device *device, unsigned *current, unsigned *pending) {
    int error = enter("nvmlDeviceGetMigMode", device);
    if (error) return error;
    if (device->slice >= 0) return INVALID_ARGUMENT;
    if (!field(device, "mig_mode")) return NOT_SUPPORTED;
    *current = *pending = instance_of(device, "mig_mode");
    return SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(Device *device, int *major, int *minor) {
    int error = enter("nvmlDeviceGetCudaComputeCapability", device);
    if (error) return error;
    if (!field(device, "compute_major")) return NOT_SUPPORTED;
    *major = instance_of(device, "compute_major");
    *minor = instance_of(device, "compute_minor");
    return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(Device *device, unsigned *out) {
    int error = enter("nvmlDeviceGetMaxMigDeviceCount", device);
    if (!error) *out = MAX_SLICES - 1;
    return error;
}

int nvmlDeviceGetMigDeviceHandleByIndex(Device *device, unsigned index, Device **out) {
    int error = enter("nvmlDeviceGetMigDeviceHandleByIndex", device);
    if (error) return error;
    if (index >= MAX_SLICES || !field(&slices[device->index][index], "uuid")) return NOT_FOUND;
    *out = &slices[device->index][index];
    return SUCCESS;
}

int nvmlDeviceGetGpuInstanceId(Device *device, unsigned *out) {
    return number32("nvmlDeviceGetGpuInstanceId", device, "gpu_instance", out);
}

int nvmlDeviceGetComputeInstanceId(Device *device, unsigned *out) {
    return number32("nvmlDeviceGetComputeInstanceId", device, "compute_instance", out);
}

typedef struct {
    unsigned multiprocessors, engines[5], gpu_slices, compute_slices;
    uint64_t memory_megabytes;
} Attributes;

int nvmlDeviceGetAttributes_v2(Device *device, Attributes *out) {
    memset(out, 0, sizeof *out);
    return number32("nvmlDeviceGetAttributes_v2", device, "compute_slices", &out->compute_slices);
}

/* Processes. */

typedef struct {
    unsigned pid;
    uint64_t used_bytes;
    unsigned gpu_instance, compute_instance;
} ProcessInfo;

int nvmlDeviceGetComputeRunningProcesses_v3(Device *device, unsigned *num, ProcessInfo *out) {
    int error = enter("nvmlDeviceGetComputeRunningProcesses_v3", device);
    if (error) return error;
    Entry *entry = field(device, "processes");
    if (!entry) return NOT_SUPPORTED;
    unsigned room = *num;
    *num = (unsigned)entry->num_points;
    if (room < *num) return INSUFFICIENT_SIZE;
    for (unsigned at = 0; at < *num; at++)
        out[at] = (ProcessInfo){(unsigned)entry->times[at], (uint64_t)entry->values[at], 0xffffffffu,
                                0xffffffffu};
    return SUCCESS;
}
