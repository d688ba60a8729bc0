// The table of aliases.
#include "bantam/run/config/aliases.h"

#include "bantam/base/config/config_aliases.h"
#include "bantam/engine/losses/loss.h"
#include "bantam/engine/metrics/metric.h"
#include "bantam/engine/optimizers/optimizer.h"

namespace bantam::run {
namespace {

constexpr std::string_view kPrecision = "precision", kLoss = "train.loss", kMetric = "train.metrics.*",
                           kOptimizer = "train.optimizer", kDevice = "device";

constexpr ConfigAlias kAliases[] = {
    {kPrecision, "amp", "mixed_float16"},
    {kPrecision, "autocast", "mixed_float16"},
    {kPrecision, "mixed", "mixed_float16"},
    {kPrecision, "mixedprecision", "mixed_float16"},
    {kPrecision, "mixedfloat16", "mixed_float16"},
    {kPrecision, "mixedfp16", "mixed_float16"},
    {kPrecision, "fp16", "mixed_float16"},
    {kPrecision, "f16", "mixed_float16"},
    {kPrecision, "half", "mixed_float16"},
    {kPrecision, "16", "mixed_float16"},
    {kPrecision, "16mixed", "mixed_float16"},
    {kPrecision, "fp16mixed", "mixed_float16"},
    {kPrecision, "float16mixed", "mixed_float16"},
    {kPrecision, "bf16", "mixed_bfloat16"},
    {kPrecision, "bfloat16", "mixed_bfloat16"},
    {kPrecision, "bf16mixed", "mixed_bfloat16"},
    {kPrecision, "bfloat16mixed", "mixed_bfloat16"},
    {kPrecision, "mixedbf16", "mixed_bfloat16"},
    {kPrecision, "mixedbfloat16", "mixed_bfloat16"},
    {kPrecision, "fp32", "float32"},
    {kPrecision, "f32", "float32"},
    {kPrecision, "float", "float32"},
    {kPrecision, "single", "float32"},
    {kPrecision, "full", "float32"},
    {kPrecision, "32", "float32"},
    {kPrecision, "32true", "float32"},
    {kPrecision, "16true", "float16"},
    {kPrecision, "fp16true", "float16"},

    {kDevice, "gpu", "cuda:0"},

    {kLoss, "crossentropy", "softmax_cross_entropy"},
    {kLoss, "crossentropyloss", "softmax_cross_entropy"},
    {kLoss, "ce", "softmax_cross_entropy"},
    {kLoss, "celoss", "softmax_cross_entropy"},
    {kLoss, "xent", "softmax_cross_entropy"},
    {kLoss, "categoricalcrossentropy", "softmax_cross_entropy"},
    {kLoss, "sparsecategoricalcrossentropy", "softmax_cross_entropy"},
    {kLoss, "softmaxcrossentropywithlogits", "softmax_cross_entropy"},
    {kLoss, "bce", "binary_cross_entropy"},
    {kLoss, "bceloss", "binary_cross_entropy"},
    {kLoss, "bcewithlogits", "binary_cross_entropy"},
    {kLoss, "bcewithlogitsloss", "binary_cross_entropy"},
    {kLoss, "binarycrossentropy", "binary_cross_entropy"},
    {kLoss, "binarycrossentropywithlogits", "binary_cross_entropy"},
    {kLoss, "sigmoidcrossentropy", "binary_cross_entropy"},
    {kLoss, "poly", "poly1"},
    {kLoss, "polyloss", "poly1"},
    {kLoss, "poly1loss", "poly1"},
    {kLoss, "poly1crossentropy", "poly1"},
    {kLoss, "poly1crossentropyloss", "poly1"},
    {kLoss, "focalloss", "focal"},
    {kLoss, "sigmoidfocalloss", "focal"},
    {kLoss, "mseloss", "mse"},
    {kLoss, "l2", "mse"},
    {kLoss, "l2loss", "mse"},
    {kLoss, "meansquarederror", "mse"},
    {kLoss, "maeloss", "mae"},
    {kLoss, "l1", "mae"},
    {kLoss, "l1loss", "mae"},
    {kLoss, "meanabsoluteerror", "mae"},
    {kLoss, "huberloss", "huber"},
    {kLoss, "smoothl1", "huber"},
    {kLoss, "smoothl1loss", "huber"},
    {kLoss, "diceloss", "dice"},

    {kMetric, "acc", "accuracy"},
    {kMetric, "top1", "accuracy"},
    {kMetric, "top1acc", "accuracy"},
    {kMetric, "top1accuracy", "accuracy"},
    {kMetric, "accuracyscore", "accuracy"},
    {kMetric, "categoricalaccuracy", "accuracy"},
    {kMetric, "sparsecategoricalaccuracy", "accuracy"},
    {kMetric, "binaryaccuracy", "accuracy"},
    {kMetric, "multiclassaccuracy", "accuracy"},
    {kMetric, "top5", "top_k"},
    {kMetric, "top5acc", "top_k"},
    {kMetric, "top5accuracy", "top_k"},
    {kMetric, "topk", "top_k"},
    {kMetric, "topkaccuracy", "top_k"},
    {kMetric, "topkcategoricalaccuracy", "top_k"},
    {kMetric, "f1score", "f1"},
    {kMetric, "macrof1", "f1"},
    {kMetric, "multiclassf1score", "f1"},
    {kMetric, "iou", "mean_iou"},
    {kMetric, "miou", "mean_iou"},
    {kMetric, "meaniou", "mean_iou"},
    {kMetric, "jaccard", "mean_iou"},
    {kMetric, "jaccardindex", "mean_iou"},
    {kMetric, "auroc", "auc"},
    {kMetric, "rocauc", "auc"},
    {kMetric, "rocaucscore", "auc"},
    {kMetric, "cm", "confusion_matrix"},
    {kMetric, "confusion", "confusion_matrix"},
    {kMetric, "confusionmatrix", "confusion_matrix"},
    {kMetric, "meansquarederror", "mse"},
    {kMetric, "meanabsoluteerror", "mae"},
    {kMetric, "r2score", "r2"},

    {kOptimizer, "adam", "adam"},
    {kOptimizer, "adamw", "adamw"},
    {kOptimizer, "sgd", "sgd"},
    {kOptimizer, "rmsprop", "rmsprop"},
    {kOptimizer, "lion", "lion"},
    {kOptimizer, "lamb", "lamb"},
    {kOptimizer, "muon", "muon"},
};

/// A name that programs may have added in the same spelling.
bool is_registered(const ConfigAlias& alias, std::string_view text) {
  if (alias.path == kLoss) return losses().find(text) != nullptr;
  if (alias.path == kMetric) return metrics().find(text) != nullptr;
  return alias.path == kOptimizer && optimizers().find(text) != nullptr;
}

}  // namespace

void replace_foreign_names(const ConfigDocument& document) { replace_aliases(document, kAliases, is_registered); }

std::string precision_name(const std::string& text) {
  const std::string word = alias_word(text);
  for (const ConfigAlias& alias : kAliases)
    if (alias.path == kPrecision && alias.word == word) return std::string(alias.name);
  return text;
}

}  // namespace bantam::run
