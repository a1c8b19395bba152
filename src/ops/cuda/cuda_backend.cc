#include "ops/cuda/cuda_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "ops/cuda/attention_cuda.cuh"
#include "ops/cuda/attention_prepare.cuh"
#include "ops/cuda/delta_cuda.cuh"
#include "ops/cuda/embed.cuh"
#include "ops/cuda/few_tokens.cuh"
#include "ops/cuda/head_cuda.cuh"
#include "ops/cuda/norm.cuh"
#include "ops/cuda/peer_group.h"
#include "ops/cuda/swiglu.cuh"
#include "ops/cuda/warm_products.h"

namespace tandem::ops::cuda {
namespace {

constexpr std::size_t kWorkspaceBytes = 64u << 20;

int parity(std::uint64_t step) { return static_cast<int>(step & 1); }

const DeviceMatrix& matrix(const LinearWeight& weight) { return *static_cast<const DeviceMatrix*>(weight.packed); }

}  // namespace

Result<std::unique_ptr<CudaBackend>> CudaBackend::open(int ordinal) {
  std::unique_ptr<CudaBackend> backend(new CudaBackend);
  Context& context = backend->context_;
  context.ordinal = ordinal;
  TANDEM_TRY(checked(cudaSetDevice(ordinal), fmt::format("binding CUDA device {}", ordinal)));
  cudaDeviceProp properties{};
  TANDEM_TRY(checked(cudaGetDeviceProperties(&properties, ordinal), "device properties"));
  if (properties.major != 9)
    return fail(ErrorKind::Unsupported,
                fmt::format("[device] CUDA device {} ({}) has compute capability {}.{}; this build serves 9.0 (H100, H200)",
                            ordinal, properties.name, properties.major, properties.minor));
  context.multiprocessors = properties.multiProcessorCount;
  TANDEM_TRY(checked(cudaStreamCreateWithFlags(&context.stream, cudaStreamNonBlocking), "stream"));
  if (const auto status = cublasLtCreate(&context.lt); status != CUBLAS_STATUS_SUCCESS)
    return fail(ErrorKind::Device, fmt::format("cublasLtCreate: {}", cublasLtGetStatusName(status)));
  for (cudaEvent_t& event : backend->done_)
    TANDEM_TRY(checked(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "step event"));
  TANDEM_ASSIGN(context.workspace, backend->allocate(kWorkspaceBytes, MemoryUse::Scratch, "GEMM workspace"));
  context.workspace_bytes = kWorkspaceBytes;
  TANDEM_TRY(prepare_attention(context));
  TANDEM_TRY(prepare_delta(context));
  TANDEM_TRY(prepare_few_tokens());
  backend->gemm_.choose_table(properties.name);
  return backend;
}

CudaBackend::~CudaBackend() {
  if (context_.stream) cudaStreamSynchronize(context_.stream);
  for (const Recording& recording : recordings_) cudaGraphExecDestroy(recording.graph);
  if (context_.lt) cublasLtDestroy(context_.lt);
  for (void* memory : pinned_memory_) cudaFreeHost(memory);
  for (void* memory : device_memory_) cudaFree(memory);
  for (cudaEvent_t event : done_)
    if (event) cudaEventDestroy(event);
  if (context_.stream) cudaStreamDestroy(context_.stream);
}

Result<DeviceInfo> CudaBackend::device() {
  cudaDeviceProp properties{};
  TANDEM_TRY(checked(cudaGetDeviceProperties(&properties, context_.ordinal), "device properties"));
  DeviceInfo info{.name = properties.name, .ordinal = context_.ordinal};
  info.address = fmt::format("{:04x}:{:02x}:{:02x}.0", properties.pciDomainID, properties.pciBusID, properties.pciDeviceID);
  for (const char byte : properties.uuid.bytes) info.uuid += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  TANDEM_TRY(checked(cudaMemGetInfo(&info.free_bytes, &info.total_bytes), "device memory"));
  return info;
}

Result<void*> CudaBackend::allocate(std::size_t bytes, MemoryUse use, std::string_view what) {
  void* memory = nullptr;
  if (const cudaError_t status = cudaMalloc(&memory, bytes); status != cudaSuccess) {
    cudaGetLastError();
    std::size_t available = 0, total = 0;
    cudaMemGetInfo(&available, &total);
    return fail(status == cudaErrorMemoryAllocation ? ErrorKind::Capacity : ErrorKind::Device,
                fmt::format("{}: {} bytes wanted on CUDA device {}, {} free of {} ({})", what, bytes, context_.ordinal,
                            available, total, cudaGetErrorName(status)));
  }
  device_memory_.push_back(memory);
  allocations_.push_back({use, std::string(what), bytes});
  TANDEM_TRY(checked(cudaMemsetAsync(memory, 0, bytes, context_.stream), what));
  return memory;
}

Result<void*> CudaBackend::pinned(std::size_t bytes) {
  void* memory = nullptr;
  TANDEM_TRY(checked(cudaMallocHost(&memory, bytes), fmt::format("{} bytes of pinned memory", bytes)));
  pinned_memory_.push_back(memory);
  std::memset(memory, 0, bytes);
  return memory;
}

Result<LinearWeight> CudaBackend::load_stacked(std::span<const HostMatrix> parts, bool gate_up, std::string_view what) {
  auto stacked = std::make_unique<DeviceMatrix>();
  for (const HostMatrix& part : parts) stacked->rows += part.rows;
  stacked->cols = parts.front().cols;
  const std::size_t bytes = static_cast<std::size_t>(stacked->rows) * static_cast<std::size_t>(stacked->cols) * sizeof(bf16);
  TANDEM_ASSIGN(void* memory, allocate(bytes, MemoryUse::Weights, what));
  auto* to = static_cast<bf16*>(memory);
  stacked->data = to;
  for (const HostMatrix& part : parts) {
    TANDEM_TRY(upload_.copy(context_, part, to));
    to += part.rows * part.cols;
  }
  stacked->gate_up = gate_up;
  TANDEM_ASSIGN(stacked->units, block_units(*stacked, gate_up));
  TANDEM_ASSIGN(stacked->tiles, weight_tiles(*stacked));
  const LinearWeight weight{stacked.get(), stacked->rows, stacked->cols};
  matrices_.push_back(std::move(stacked));
  return weight;
}

Result<LinearWeight> CudaBackend::load_linear(std::span<const HostMatrix> parts, std::string_view what) {
  return load_stacked(parts, false, what);
}

Result<LinearWeight> CudaBackend::load_gate_up(const HostMatrix& gate, const HostMatrix& up, std::string_view what) {
  const HostMatrix parts[] = {gate, up};
  return load_stacked(parts, true, what);
}

Result<EmbeddingWeight> CudaBackend::load_embedding(const HostMatrix& table) {
  TANDEM_ASSIGN(const LinearWeight weight, load_stacked({&table, 1}, false, "embedding"));
  return EmbeddingWeight{matrix(weight).data, weight.rows, weight.cols};
}

Result<LinearWeight> CudaBackend::tie_head(const EmbeddingWeight& embedding) {
  auto head = std::make_unique<DeviceMatrix>(DeviceMatrix{.data = embedding.table, .rows = embedding.vocab, .cols = embedding.hidden});
  TANDEM_ASSIGN(head->tiles, weight_tiles(*head));
  matrices_.push_back(std::move(head));
  return LinearWeight{matrices_.back().get(), embedding.vocab, embedding.hidden};
}

Result<const float*> CudaBackend::load_vector(std::span<const float> values, std::string_view what) {
  TANDEM_ASSIGN(void* memory, allocate(values.size_bytes(), MemoryUse::Weights, what));
  TANDEM_TRY(copy_to_device(memory, values.data(), values.size_bytes()));
  return static_cast<const float*>(memory);
}

Result<std::vector<bf16>> CudaBackend::read_back(const LinearWeight& weight) {
  std::vector<bf16> values(static_cast<std::size_t>(weight.rows * weight.cols));
  TANDEM_TRY(copy_to_host(values.data(), matrix(weight).data, values.size() * sizeof(bf16)));
  return values;
}

Result<void> CudaBackend::reserve(const StepLimits& limits) {
  limits_ = limits;
  TANDEM_TRY(upload_.finish(context_));
  for (const auto& weight : matrices_) {
    hidden_ = weight->rows == limits.vocab ? weight->cols : hidden_;
    // A gate-up matrix may have as many rows as the head.
    TANDEM_TRY(gemm_.prepare(*weight, std::max(limits.max_tokens, limits.max_logit_rows)));
  }
  TANDEM_TRY(warm_products(context_, gemm_, matrices_, limits));
  const auto slots = static_cast<std::size_t>(limits.slots) + 1;
  const auto logit_rows = static_cast<std::size_t>(limits.max_logit_rows);
  TANDEM_ASSIGN(void* page_table, allocate(slots * static_cast<std::size_t>(StepUpload::max_pages(limits)) * sizeof(std::int32_t),
                                           MemoryUse::Scratch, "page tables"));
  TANDEM_ASSIGN(void* last_sampled, allocate(slots * sizeof(std::int32_t), MemoryUse::Scratch, "last sampled ids"));
  TANDEM_ASSIGN(void* metadata, allocate(StepUpload::bytes(limits), MemoryUse::Scratch, "step metadata"));
  void* staged[2] = {};
  for (void*& host : staged) {
    TANDEM_ASSIGN(host, pinned(StepUpload::bytes(limits)));
  }
  steps_.place(limits, metadata, staged, static_cast<std::int32_t*>(page_table), static_cast<std::int32_t*>(last_sampled));

  TANDEM_ASSIGN(void* sampler_state, allocate(Sampler::state_bytes(limits), MemoryUse::Sampler, "sampler state"));
  TANDEM_ASSIGN(void* bindings, allocate(Sampler::staging_bytes(limits), MemoryUse::Sampler, "sampler bindings"));
  void* bindings_host[2] = {};
  for (void*& host : bindings_host) {
    TANDEM_ASSIGN(host, pinned(Sampler::staging_bytes(limits)));
  }
  TANDEM_TRY(sampler_.place(limits, sampler_state, bindings, bindings_host));

  const std::size_t choice_bytes = sizeof(TokenChoice) * static_cast<std::size_t>(limits.max_tokens);
  TANDEM_ASSIGN(void* choices, allocate(choice_bytes, MemoryUse::Sampler, "token choices"));
  choices_ = static_cast<TokenChoice*>(choices);
  for (TokenChoice*& host : host_choices_) {
    TANDEM_ASSIGN(void* memory, pinned(choice_bytes));
    host = static_cast<TokenChoice*>(memory);
  }
  TANDEM_ASSIGN(void* partials, allocate(decode_partials_bytes(std::max(limits.max_rows, kPrefillTokensAtOnce), kMaxQueryHeads), MemoryUse::Scratch,
                                         "split attention partials"));
  attention_partials_ = static_cast<float*>(partials);
  TANDEM_ASSIGN(void* const block_state, allocate(2 * sizeof(unsigned long long), MemoryUse::Scratch, "grid barrier"));
  TANDEM_ASSIGN(void* const block_partials, allocate(DecodeBlock::kPartialsBytes, MemoryUse::Scratch, "decode block partials"));
  TANDEM_TRY(block_.prepare(block_state, block_partials));
  TANDEM_ASSIGN(void* gathered, allocate(logit_rows * static_cast<std::size_t>(hidden_) * sizeof(bf16), MemoryUse::Scratch,
                                         "head input"));
  gathered_ = static_cast<bf16*>(gathered);
  TANDEM_ASSIGN(void* narrow, allocate(logit_rows * static_cast<std::size_t>(limits.vocab) * sizeof(bf16), MemoryUse::Scratch,
                                       "bf16 logits"));
  narrow_logits_ = static_cast<bf16*>(narrow);
  return synchronize();
}

Result<void> CudaBackend::begin_step(const StepView& step) {
  ++step_number_;
  const int side = parity(step_number_);
  sampled_[side] = false;
  choice_count_[side] = static_cast<int>(step.logit_rows.size());
  TANDEM_TRY(steps_.upload(context_, step, side));
  TANDEM_TRY(sampler_.bind(context_, step, side));
  return apply_page_updates(context_, steps_.step());
}

Result<void> CudaBackend::embed(const EmbedArgs& args) { return cuda::embed(context_, steps_.step(), args); }

Result<void> CudaBackend::norm(const NormArgs& args) { return cuda::norm(context_, args); }

Result<void> CudaBackend::reduce_add_norm(const ReduceAddNormArgs& args) {
  if (args.comm->world() > 1) {
    TANDEM_ASSIGN(const bool fused, peer_reduce_add_norm(args));
    if (fused) return {};
    TANDEM_TRY(args.comm->all_reduce(args.partial.data, args.partial.size(0) * args.partial.size(1)));
  }
  return add_norm(context_, args);
}

Result<void> CudaBackend::linear(const LinearArgs& args) { return gemm_.run(args.x, matrix(args.weight), args.y); }

Result<void> CudaBackend::linear_swiglu(const LinearSwigluArgs& args) {
  TANDEM_ASSIGN(const bool fused, gemm_.run_swiglu(args.x, matrix(args.weight), args.y));
  if (fused) return {};
  TANDEM_TRY(gemm_.run(args.x, matrix(args.weight), args.gate_up));
  return swiglu(context_, args.gate_up, args.y);
}

Result<void> CudaBackend::attention_prepare(const AttentionPrepareArgs& args) {
  return cuda::attention_prepare(context_, steps_.step(), args);
}

Result<void> CudaBackend::attention(const AttentionArgs& args) {
  TANDEM_TRY(attention_decode(context_, steps_.step(), args, attention_partials_));
  return attention_prefill(context_, steps_.step(), args);
}

Result<void> CudaBackend::delta_prepare(const DeltaPrepareArgs& args) {
  return cuda::delta_prepare(context_, steps_.step(), args);
}

Result<void> CudaBackend::delta_rule(const DeltaRuleArgs& args) { return cuda::delta_rule(context_, steps_.step(), args); }

Result<void> CudaBackend::gated_norm(const GatedNormArgs& args) { return cuda::gated_norm(context_, args); }

Result<void> CudaBackend::delta_mixer(const DeltaMixerArgs& args) {
  TANDEM_TRY(delta_decode(context_, steps_.step(), args));
  return delta_prefill(context_, steps_.step(), args);
}

Result<void> CudaBackend::block(const BlockArgs& args) {
  TANDEM_ASSIGN(const bool fused, block_.run(context_, args));
  return fused ? Result<void>{} : Backend::block(args);
}

Result<void> CudaBackend::head(const HeadArgs& args) {
  const std::int64_t rows = args.logits.size(0);
  const View<bf16, 2> gathered = dense(gathered_, rows, args.hidden.size(1));
  const View<bf16, 2> narrow = dense(narrow_logits_, rows, args.logits.size(1));
  TANDEM_TRY(gather_hidden(context_, steps_.step(), args.hidden, args.first, gathered));
  TANDEM_TRY(gemm_.run(gathered, matrix(args.weight), narrow));
  return widen_logits(context_, narrow, args.logits);
}

Result<void> CudaBackend::sample(const SampleArgs& args) {
  sampled_[parity(step_number_)] = true;
  return sampler_.sample(context_, steps_.step(), args, choices_);
}

Result<void> CudaBackend::note_prompt() { return sampler_.note_prompt(context_, steps_.step()); }

Result<void> CudaBackend::store_sampled(const std::int32_t* ids) {
  TANDEM_TRY(store_last_sampled(context_, steps_.step(), ids));
  return sampler_.count(context_, steps_.step(), ids);
}

Result<std::uint64_t> CudaBackend::end_step() {
  const int side = parity(step_number_);
  if (sampled_[side])
    TANDEM_TRY(checked(cudaMemcpyAsync(host_choices_[side], choices_,
                                       sizeof(TokenChoice) * static_cast<std::size_t>(choice_count_[side]),
                                       cudaMemcpyDeviceToHost, context_.stream),
                       "token choices"));
  TANDEM_TRY(checked(cudaEventRecord(done_[side], context_.stream), "step event"));
  return step_number_;
}

Result<std::span<const TokenChoice>> CudaBackend::wait(std::uint64_t ticket) {
  const int side = parity(ticket);
  TANDEM_TRY(checked(cudaEventSynchronize(done_[side]), fmt::format("waiting for step {}", ticket)));
  if (!sampled_[side]) return std::span<const TokenChoice>{};
  return std::span<const TokenChoice>(host_choices_[side], static_cast<std::size_t>(choice_count_[side]));
}

Result<void> CudaBackend::begin_recording() {
  return checked(cudaStreamBeginCapture(context_.stream, cudaStreamCaptureModeThreadLocal), "begin recording");
}

Result<void> CudaBackend::end_recording() {
  cudaGraph_t graph = nullptr;
  TANDEM_TRY(checked(cudaStreamEndCapture(context_.stream, &graph), "end recording"));
  Recording recording{steps_.step().total_rows, steps_.step().total_logit_rows, nullptr};
  const auto made = checked(cudaGraphInstantiate(&recording.graph, graph, 0), "instantiating a recorded step");
  cudaGraphDestroy(graph);
  TANDEM_TRY(made);
  TANDEM_TRY(checked(cudaGraphUpload(recording.graph, context_.stream), "uploading a recorded step"));
  recordings_.push_back(recording);
  return {};
}

Result<bool> CudaBackend::replay() {
  const DeviceStep& step = steps_.step();
  if (step.decode_rows != step.total_rows) return false;
  for (const Recording& recording : recordings_) {
    if (recording.rows != step.total_rows || recording.logit_rows != step.total_logit_rows) continue;
    TANDEM_TRY(checked(cudaGraphLaunch(recording.graph, context_.stream), "recorded step"));
    sampled_[parity(step_number_)] = step.total_logit_rows > 0;
    return true;
  }
  return false;
}

Result<void> CudaBackend::copy_to_host(void* host, const void* device, std::size_t bytes) {
  TANDEM_TRY(checked(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, context_.stream), "copy to host"));
  return synchronize();
}

Result<void> CudaBackend::copy_to_device(void* device, const void* host, std::size_t bytes) {
  TANDEM_TRY(checked(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, context_.stream), "copy to device"));
  return synchronize();
}

Result<void> CudaBackend::fill_bytes(void* device, std::uint8_t value, std::size_t bytes) {
  return checked(cudaMemsetAsync(device, value, bytes, context_.stream), "fill");
}

Result<void> CudaBackend::synchronize() { return checked(cudaStreamSynchronize(context_.stream), "synchronize"); }

}  // namespace tandem::ops::cuda
