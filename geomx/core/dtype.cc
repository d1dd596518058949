// Facts of the element types: size, name, and what they are summed in.
#include "codec.h"

namespace geomx {

namespace {

struct Fact {
  const char* name;
  size_t size;
  DType sum;
};
constexpr Fact facts[] = {
    {"float32", 4, DType::f32}, {"float16", 2, DType::f32}, {"bfloat16", 2, DType::f32}, {"float64", 8, DType::f64},
    {"int32", 4, DType::i32},   {"int64", 8, DType::i64},   {"uint8", 1, DType::u8},
};
constexpr size_t num_dtypes = sizeof(facts) / sizeof(facts[0]);

const Fact& fact_of(DType dtype) {
  GX_CHECK(size_t(dtype) < num_dtypes, "a dtype that the wire's parser should have refused");
  return facts[size_t(dtype)];
}

}  // namespace

size_t size_of(DType dtype) { return fact_of(dtype).size; }
const char* name_of(DType dtype) { return fact_of(dtype).name; }
DType sum_type(DType dtype) { return fact_of(dtype).sum; }

bool parse_dtype(const std::string& name, DType* out) {
  for (size_t i = 0; i < num_dtypes; ++i) {
    if (name == facts[i].name) {
      *out = DType(i);
      return true;
    }
  }
  return false;
}

}  // namespace geomx
