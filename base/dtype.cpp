// Names of element types.
#include "bantam/base/dtype.h"

#include <array>
#include <string>
#include <utility>

#include "bantam/base/error.h"

namespace bantam {
namespace {

constexpr std::array<std::pair<DType, std::string_view>, 7> kDTypeNames = {{
    {DType::float32, "float32"},
    {DType::float16, "float16"},
    {DType::bfloat16, "bfloat16"},
    {DType::float64, "float64"},
    {DType::uint8, "uint8"},
    {DType::int32, "int32"},
    {DType::int64, "int64"},
}};

}  // namespace

std::string_view to_string(DType dtype) {
  for (const auto& [value, name] : kDTypeNames)
    if (value == dtype) return name;
  return "?";
}

}  // namespace bantam
