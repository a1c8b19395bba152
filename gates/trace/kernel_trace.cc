// Records what a CUDA program's device does: every kernel, copy and fill, also those inside recorded graphs, with times
// in nanoseconds of the device's clock. The CUDA driver loads it into a program that is started with
//   CUDA_INJECTION64_PATH=.../libtandem_trace.so TANDEM_TRACE=out.csv
// so nothing of the program knows of it. One line an activity, in the order in which the device's buffers come:
//   start,end,kind,graph,launch,name
// `graph` is 0 outside recorded graphs; one launch of a graph shares its `launch`. tools/plot_timeline.py reads it.
// Tracing each kernel of a graph makes the host's launch of it slow, so the gap between two graphs is not to be read off
// such a trace. With TANDEM_TRACE_GRAPHS=1 a launch of a graph is one activity, and costs next to nothing.

#include <cupti.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace {

constexpr std::size_t kBufferBytes = 8u << 20;

std::FILE* file = nullptr;
std::mutex mutex;

void write(const CUpti_Activity* record) {
  const auto line = [](unsigned long long start, unsigned long long end, const char* kind, unsigned graph, unsigned launch, const char* name) {
    std::fprintf(file, "%llu,%llu,%s,%u,%u,%s\n", start, end, kind, graph, launch, name);
  };
  if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
    const auto* kernel = reinterpret_cast<const CUpti_ActivityKernel10*>(record);
    line(kernel->start, kernel->end, "kernel", kernel->graphId, kernel->correlationId, kernel->name);
  } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
    const auto* copy = reinterpret_cast<const CUpti_ActivityMemcpy6*>(record);
    line(copy->start, copy->end, "copy", copy->graphId, copy->correlationId,
         copy->copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_HTOD   ? "host to device"
         : copy->copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOH ? "device to host"
                                                             : "on the device");
  } else if (record->kind == CUPTI_ACTIVITY_KIND_GRAPH_TRACE) {
    const auto* graph = reinterpret_cast<const CUpti_ActivityGraphTrace2*>(record);
    line(graph->start, graph->end, "graph", graph->graphId, graph->correlationId, "graph");
  } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
    const auto* fill = reinterpret_cast<const CUpti_ActivityMemset4*>(record);
    line(fill->start, fill->end, "fill", fill->graphId, fill->correlationId, "fill");
  }
}

void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most_records) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, kBufferBytes));
  *bytes = *buffer ? kBufferBytes : 0;
  *most_records = 0;
}

void CUPTIAPI take_buffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t bytes) {
  {
    const std::lock_guard lock(mutex);
    CUpti_Activity* record = nullptr;
    while (file && cuptiActivityGetNextRecord(buffer, bytes, &record) == CUPTI_SUCCESS) write(record);
  }
  std::free(buffer);
}

void finish() {
  cuptiActivityFlushAll(1);
  const std::lock_guard lock(mutex);
  if (file) std::fclose(file);
  file = nullptr;
}

}  // namespace

// What the driver calls when it starts in the program; 1 is success.
extern "C" int InitializeInjection() {
  const char* path = std::getenv("TANDEM_TRACE");
  file = std::fopen(path ? path : "trace.csv", "w");
  if (!file) return 0;
  if (cuptiActivityRegisterCallbacks(give_buffer, take_buffer) != CUPTI_SUCCESS) return 0;
  for (const CUpti_ActivityKind kind : {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET})
    if (cuptiActivityEnable(kind) != CUPTI_SUCCESS) return 0;
  const char* graphs = std::getenv("TANDEM_TRACE_GRAPHS");
  if (graphs && *graphs == '1' && cuptiActivityEnable(CUPTI_ACTIVITY_KIND_GRAPH_TRACE) != CUPTI_SUCCESS) return 0;
  std::atexit(finish);
  return 1;
}
