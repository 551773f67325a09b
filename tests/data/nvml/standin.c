/* A stand-in libnvidia-ml.so.1, so that the real pynvml runs where there is no GPU.
 *
 *   gcc -shared -fPIC -Wl,-soname,libnvidia-ml.so.1 -o DIR/libnvidia-ml.so.1 standin.c
 *   LD_LIBRARY_PATH=DIR NVML_STANDIN=FILE program        (FILE: else /run/nvml-standin)
 *
 * FILE has one GPU a line, as key=value separated by tabs, read again at every call, so that a test can change a GPU under
 * a running program. Keys, with what holds without them: uuid, serial, name (an A100), bus (0000:00:00.0), device_id
 * (20b010de), memory_mib (40960), links (12), temperature (34), power_mw (61000), throttle (1), ecc (1), ecc_volatile,
 * ecc_aggregate, remap_correctable, remap_uncorrectable, remap_pending, remap_failure (all 0), pcie_gen (4), pcie_width
 * (16), pid (0: no process), error (0; 15 is "GPU is lost": every call for that GPU answers with it).
 * No FILE: the driver is not loaded. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int status;
typedef struct device *device; /* the GPU's number, plus one */
typedef unsigned int u32;
typedef unsigned long long u64;
enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, UNSUPPORTED = 3, TOO_SMALL = 7, NO_DRIVER = 9, LOST = 15 };
enum { MAX_GPUS = 64, MAX_LINE = 2048, MAX_LINKS = 18 };

static char lines[MAX_GPUS][MAX_LINE];
static u32 count, users;

static status load(void) {
  const char *path = getenv("NVML_STANDIN");
  FILE *file = fopen(path ? path : "/run/nvml-standin", "r");
  count = 0;
  if (!file) return NO_DRIVER;
  while (count < MAX_GPUS && fgets(lines[count], MAX_LINE, file)) {
    lines[count][strcspn(lines[count], "\n")] = 0;
    if (lines[count][0]) count++;
  }
  fclose(file);
  return OK;
}

/* The value of `key` on a GPU's line, in a buffer that the next call overwrites. */
static const char *text(u32 gpu, const char *key, const char *otherwise) {
  static char value[MAX_LINE];
  size_t length = strlen(key);
  for (const char *at = lines[gpu]; at; at = strchr(at, '\t') ? strchr(at, '\t') + 1 : 0)
    if (!strncmp(at, key, length) && at[length] == '=') {
      strcpy(value, at + length + 1);
      value[strcspn(value, "\t")] = 0;
      return value;
    }
  return otherwise;
}

static u64 number(u32 gpu, const char *key, u64 otherwise) {
  const char *value = text(gpu, key, 0);
  return value ? strtoull(value, 0, 0) : otherwise;
}

static status give(char *out, u32 size, const char *value) {
  if (strlen(value) >= size) return TOO_SMALL;
  strcpy(out, value);
  return OK;
}

#define LIBRARY                        \
  if (!users) return UNINITIALIZED;    \
  if (load() != OK) return NO_DRIVER;

#define GPU                                                 \
  u32 gpu = (u32)(size_t)handle - 1;                        \
  LIBRARY                                                   \
  if (gpu >= count) return INVALID;                         \
  if (number(gpu, "error", OK)) return (status)number(gpu, "error", OK);

status nvmlInitWithFlags(u32 flags) { (void)flags; if (load() != OK) return NO_DRIVER; users++; return OK; }
status nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
status nvmlShutdown(void) { if (!users) return UNINITIALIZED; users--; return OK; }
const char *nvmlErrorString(status code) {
  return code == OK ? "Success" : code == LOST ? "GPU is lost" : code == NO_DRIVER ? "Driver Not Loaded" : "Stand-in error";
}

status nvmlSystemGetDriverVersion(char *out, u32 size) { LIBRARY return give(out, size, "550.54.15"); }
status nvmlSystemGetNVMLVersion(char *out, u32 size) { LIBRARY return give(out, size, "12.550.54.15"); }
status nvmlSystemGetCudaDriverVersion_v2(int *out) { LIBRARY *out = 12040; return OK; }
status nvmlDeviceGetCount_v2(u32 *out) { LIBRARY *out = count; return OK; }
status nvmlDeviceGetHandleByIndex_v2(u32 index, device *out) {
  device handle = (device)(size_t)(index + 1);
  GPU *out = handle;
  return OK;
}

status nvmlDeviceGetName(device handle, char *out, u32 size) {
  GPU return give(out, size, text(gpu, "name", "NVIDIA A100-SXM4-40GB"));
}
status nvmlDeviceGetUUID(device handle, char *out, u32 size) {
  GPU return give(out, size, text(gpu, "uuid", "GPU-00000000-0000-0000-0000-000000000000"));
}
status nvmlDeviceGetSerial(device handle, char *out, u32 size) { GPU return give(out, size, text(gpu, "serial", "1650000000000")); }
status nvmlDeviceGetVbiosVersion(device handle, char *out, u32 size) { GPU return give(out, size, "92.00.36.00.01"); }

struct pci { char legacy[16]; u32 domain, bus, device, id, subsystem; char bus_id[32]; };
status nvmlDeviceGetPciInfo_v3(device handle, struct pci *out) {
  u32 domain = 0, bus = 0, slot = 0;
  GPU memset(out, 0, sizeof *out);
  sscanf(text(gpu, "bus", "0000:00:00.0"), "%x:%x:%x", &domain, &bus, &slot);
  out->domain = domain, out->bus = bus, out->device = slot;
  out->id = strtoul(text(gpu, "device_id", "20b010de"), 0, 16);
  snprintf(out->legacy, sizeof out->legacy, "%04X:%02X:%02X.0", domain & 0xffff, bus & 0xff, slot & 0xff);
  snprintf(out->bus_id, sizeof out->bus_id, "%08X:%02X:%02X.0", domain, bus & 0xff, slot & 0xff);
  return OK;
}

struct memory { u64 total, free, used; };
status nvmlDeviceGetMemoryInfo(device handle, struct memory *out) {
  GPU out->total = out->free = number(gpu, "memory_mib", 40960) << 20;
  out->used = 0;
  return OK;
}
struct memory_v2 { u32 version; u64 total, reserved, free, used; };
status nvmlDeviceGetMemoryInfo_v2(device handle, struct memory_v2 *out) {
  GPU out->total = out->free = number(gpu, "memory_mib", 40960) << 20;
  out->reserved = out->used = 0;
  return OK;
}

status nvmlDeviceGetEccMode(device handle, u32 *current, u32 *pending) { GPU *current = *pending = number(gpu, "ecc", 1); return OK; }
status nvmlDeviceGetTotalEccErrors(device handle, int type, int counter, u64 *out) {
  GPU *out = type == 0 ? 0 : number(gpu, counter == 0 ? "ecc_volatile" : "ecc_aggregate", 0); /* type 1: uncorrected */
  return OK;
}
status nvmlDeviceGetRemappedRows(device handle, u32 *correctable, u32 *uncorrectable, u32 *pending, u32 *failure) {
  GPU *correctable = number(gpu, "remap_correctable", 0);
  *uncorrectable = number(gpu, "remap_uncorrectable", 0);
  *pending = number(gpu, "remap_pending", 0);
  *failure = number(gpu, "remap_failure", 0);
  return OK;
}
status nvmlDeviceGetNvLinkState(device handle, u32 link, u32 *out) {
  GPU if (number(gpu, "links", 12) == 0) return UNSUPPORTED;
  if (link >= MAX_LINKS) return INVALID;
  *out = link < number(gpu, "links", 12);
  return OK;
}

#define ONE_NUMBER(function, type, key, otherwise) \
  status function(device handle, type *out) { GPU *out = number(gpu, key, otherwise); return OK; }
ONE_NUMBER(nvmlDeviceGetPowerUsage, u32, "power_mw", 61000)
ONE_NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, u32, "pcie_gen", 4)
ONE_NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, u32, "max_pcie_gen", 4)
ONE_NUMBER(nvmlDeviceGetCurrPcieLinkWidth, u32, "pcie_width", 16)
ONE_NUMBER(nvmlDeviceGetMaxPcieLinkWidth, u32, "max_pcie_width", 16)
ONE_NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, u64, "throttle", 1)
ONE_NUMBER(nvmlDeviceGetCurrentClocksEventReasons, u64, "throttle", 1)
status nvmlDeviceGetTemperature(device handle, int sensor, u32 *out) {
  (void)sensor;
  GPU *out = number(gpu, "temperature", 34);
  return OK;
}

struct process { u32 pid; u64 used; u32 gpu_instance, compute_instance; };
status nvmlDeviceGetComputeRunningProcesses_v3(device handle, u32 *entries, struct process *out) {
  GPU u32 room = *entries;
  *entries = number(gpu, "pid", 0) != 0;
  if (*entries > room || (*entries && !out)) return TOO_SMALL;
  if (*entries) *out = (struct process){number(gpu, "pid", 0), 5 << 20, ~0u, ~0u};
  return OK;
}
status nvmlDeviceGetGraphicsRunningProcesses_v3(device handle, u32 *entries, struct process *out) {
  (void)out;
  GPU *entries = 0;
  return OK;
}
