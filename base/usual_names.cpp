// The table.
#include "bantam/base/usual_names.h"

#include <cctype>
#include <string>
#include <utility>

namespace bantam {
namespace {

/// In the spelling of their snake_case, without "2d".
constexpr std::pair<std::string_view, std::string_view> kUsualNames[] = {
    {"adaptive_avg_pool", "global_average_pool"},
    {"adaptive_max_pool", "global_max_pool"},
    {"avg_pool", "average_pool"},
    {"average_pooling", "average_pool"},
    {"batch_norm", "batch_norm"},
    {"batch_normalization", "batch_norm"},
    {"bce", "binary_cross_entropy"},
    {"bfloat16", "mixed_bfloat16"},
    {"bf16", "mixed_bfloat16"},
    {"binary_crossentropy", "binary_cross_entropy"},
    {"categorical_crossentropy", "softmax_cross_entropy"},
    {"conv", "conv2d"},
    {"cross_entropy", "softmax_cross_entropy"},
    {"cross_entropy_loss", "softmax_cross_entropy"},
    {"fc", "dense"},
    {"fp16", "mixed_float16"},
    {"fp32", "float32"},
    {"fully_connected", "dense"},
    {"gap", "global_average_pool"},
    {"global_average_pooling", "global_average_pool"},
    {"global_avg_pool", "global_average_pool"},
    {"global_max_pooling", "global_max_pool"},
    {"group_normalization", "group_norm"},
    {"half", "mixed_float16"},
    {"kernel_size", "kernel"},
    {"layer_normalization", "layer_norm"},
    {"linear", "dense"},
    {"max_pool", "max_pool"},
    {"max_pooling", "max_pool"},
    {"mean_absolute_error", "mae"},
    {"mean_squared_error", "mse"},
    {"out_channels", "filters"},
    {"out_features", "units"},
    {"p", "rate"},
    {"pool_size", "size"},
    {"sparse_categorical_accuracy", "accuracy"},
    {"sparse_categorical_crossentropy", "softmax_cross_entropy"},
    {"strides", "stride"},
    {"swish", "silu"},
    {"use_bias", "bias"},
};

/// "globalavgpool" of "GlobalAvgPool2d" and of "global_avg_pool".
std::string plain(std::string_view word) {
  std::string text;
  for (const char c : word)
    if (c != '_' && c != '-') text += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text.ends_with("2d") ? text.substr(0, text.size() - 2) : text;
}

}  // namespace

std::optional<std::string_view> our_name(std::string_view word) {
  constexpr std::size_t kLongest = 64;  // a word of megabytes is none
  if (word.size() > kLongest) return std::nullopt;
  const std::string wanted = plain(word);
  for (const auto& [usual, ours] : kUsualNames)
    if (plain(usual) == wanted) return ours;
  return std::nullopt;
}

}  // namespace bantam
