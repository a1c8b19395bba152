#pragma once

#include <cstdint>
#include <functional>
#include <variant>
#include <vector>

#include "base/result.h"
#include "model/checkpoint.h"
#include "model/partition.h"
#include "ops/backend.h"

namespace tandem::model {

// Values of A_log and of the gated norm's weight, which published files hold in F32 (spec 3.0).
enum class VectorRounding : std::uint8_t {
  Bf16,    // rounded to bf16 on loading, as Hugging Face does in bf16
  Stored,  // as in the file, to compare with Hugging Face in float32
};

struct FullMixer {
  ops::LinearWeight qkv;  // [2 nh 256 + 2 nkv 256, H]: per head query | gate, then k, then v
  ops::LinearWeight out;  // [H, nh 256]
  const float* q_norm = nullptr;
  const float* k_norm = nullptr;
};

struct LinearMixer {
  ops::LinearWeight in;   // [C + V + 2 Hv, H]: qkv | z | b | a
  ops::LinearWeight out;  // [H, V]
  ops::DeltaParams params;
};

struct LayerWeights {
  const float* input_norm = nullptr;
  const float* post_norm = nullptr;
  std::variant<FullMixer, LinearMixer> mixer;
  ops::LinearWeight gate_up;  // [2 I, H]
  ops::LinearWeight down;     // [H, I]
};

// Bytes of this rank's share that are loaded, and of all of it.
using LoadProgress = std::function<void(std::int64_t done_bytes, std::int64_t total_bytes)>;

// One rank's weights as its backend packed them. Handles only: the backend owns the memory, and may use
// the checkpoint's mapped bytes in place, so the checkpoint outlives the backend.
struct Weights {
  ops::EmbeddingWeight embedding;
  ops::LinearWeight head;  // rank 0 only (R1.7); empty elsewhere
  const float* final_norm = nullptr;
  std::vector<LayerWeights> layers;

  // Thread: the rank's. `progress` (may be empty) is called after every layer, on this thread.
  // Errors: the backend's.
  [[nodiscard]] static Result<Weights> load(ops::Backend& backend, const Checkpoint& checkpoint,
                                            const Partition& partition,
                                            VectorRounding rounding = VectorRounding::Bf16,
                                            const LoadProgress& progress = {});
};

// What a rank loads: the tensors of text_tensors, less the head on ranks that do not run it.
[[nodiscard]] bool is_loaded(const TensorSpec& tensor, const Partition& partition);

}  // namespace tandem::model
