#include "ops/cpu/attention_impl.h"
#include "ops/cpu/delta_impl.h"
#include "ops/cpu/logits_impl.h"
#include "ops/cpu/norm_impl.h"

namespace tandem::ops::cpu {

const Kernels kKernelsBaseline{
    .norm = norm,
    .add = add_to,
    .norm_rotary = norm_rotary,
    .attend_decode = attend_decode,
    .attend_prefill = attend_prefill,
    .convolve = convolve,
    .l2_normalize = l2_normalize,
    .delta_gates = delta_gates,
    .delta_recurrence = delta_recurrence,
    .delta_prompt = delta_recurrence,
    .gated_norm = gated_norm,
    .scan_logits = scan_logits,
    .sum_weights = sum_weights,
    .sample_gumbel = sample_gumbel,
    .collect = collect,
    .divide = divide,
    .to_floats = to_floats_of,
};

}  // namespace tandem::ops::cpu
