// Arithmetic on arrays: sums, half precision, updates of weights. Vectorised for the processor that it runs on, chosen
// at run time; results are the same bits on every processor (abs_sum excepted), since nothing is fused or reordered.
//
// Knows no keys, codecs or threads. Arrays that came from the wire (`const void*`, halves) may lie at any address;
// typed pointers are aligned to their type. Arrays don't overlap, unless a comment says so.
#pragma once
#include <cstddef>
#include <cstdint>

namespace geomx {

// sum[i] = a[i] + b[i]
void sum_f32(float* sum, const void* a, const void* b, size_t n);
// sum[i] += values[i]
void add_f32(float* sum, const void* values, size_t n);
void add_f64(double* sum, const void* values, size_t n);
void add_i32(int32_t* sum, const void* values, size_t n);  // wraps round
void add_i64(int64_t* sum, const void* values, size_t n);  // wraps round
void add_u8(uint8_t* sum, const void* values, size_t n);   // wraps round
void add_f16_to_f32(float* sum, const void* halves, size_t n);
void add_bf16_to_f32(float* sum, const void* halves, size_t n);

// What becomes of values that are too large for the type. saturate: infinity and they become its largest finite value.
enum class Overflow : uint8_t { saturate, infinity };

// Rounds to nearest, ties to even. NaN stays NaN. The return value counts what was too large: with saturate infinity
// too, with infinity the finite values.
size_t f32_to_f16(const float* values, void* halves, size_t n, Overflow overflow = Overflow::saturate);
size_t f32_to_bf16(const float* values, void* halves, size_t n, Overflow overflow = Overflow::saturate);
void f16_to_f32(const void* halves, float* values, size_t n);
void bf16_to_f32(const void* halves, float* values, size_t n);

void scale_f32(float* values, float factor, size_t n);
// In which order the terms are added depends on the processor: good for ranking, not for what nodes must agree on.
double abs_sum_f32(const void* values, size_t n);

// What the steps below do first: g = rescale * gradient, clipped to [-clip, clip] unless clip is negative.
struct GradientScale {
  float rescale = 1.0f;
  float clip = -1.0f;
  float weight_decay = 0.0f;
};

struct SgdStep {
  GradientScale scale;
  float learning_rate = 0.01f;
  float momentum = 0.0f;
};
// velocity = momentum * velocity - learning_rate * (g + weight_decay * weight); weight += velocity.
// `velocity` may be null: then momentum counts as 0.
void sgd_step(float* weight, float* velocity, const float* gradient, size_t n, const SgdStep& step);

struct AdamStep {
  GradientScale scale;
  float learning_rate = 0.001f;  // corrected for the bias of both moments: lr * sqrt(1 - beta2^t) / (1 - beta1^t)
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float epsilon = 1e-8f;
};
// weight decay is added to g; then weight -= learning_rate * mean / (sqrt(variance) + epsilon).
void adam_step(float* weight, float* mean, float* variance, const float* gradient, size_t n, const AdamStep& step);

struct DcasgdStep {
  GradientScale scale;
  float learning_rate = 0.01f;
  float momentum = 0.0f;
  float lambda = 0.04f;
};
// delta = -learning_rate * (g + weight_decay * weight + lambda * g * g * (weight - backup)), through `velocity` where
// it isn't null; weight += delta. `backup` is the pusher's own: what it was last given. It becomes the new weight,
// since that is what the push is answered with.
void dcasgd_step(float* weight, float* backup, float* velocity, const float* gradient, size_t n,
                 const DcasgdStep& step);

}  // namespace geomx
