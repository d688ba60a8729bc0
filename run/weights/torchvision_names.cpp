// Rules a family and program: from our nodes' names to their modules, and from our tensors to theirs by the layer's
// kind.
#include "bantam/run/weights/torchvision_names.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <optional>
#include <span>

#include <fmt/format.h>

#include "bantam/base/error.h"

namespace bantam::run {
namespace {

/// The kind of a layer in the other program.
enum class As : std::uint8_t {
  same,
  linear,       ///< a linear layer, where we have a 1x1 convolution
  convolution,  ///< a convolution over the whole image, where we have a dense layer
  tensor        ///< no module but a tensor, with an axis of extent 1 before ours: class_token (1, 1, C)
};

/// In `own` each # stands for a number. A name of theirs that ends with _ is not followed by a dot (in_proj_weight). In
/// `torch` {…} is a term: `$1`, the first number, or a name of Numbers, with a factor before and a number after it:
/// {2*$1-1}. Of several rules for a node the first holds.
struct Rule {
  std::string_view own, torch;
  As as = As::same;
};

constexpr Rule kResNet[] = {{"stem", "conv1"},
                            {"stem_norm", "bn1"},
                            {"stage#_block#/conv#", "layer{$1}.{$2-1}.conv{$3}"},
                            {"stage#_block#/conv#_norm", "layer{$1}.{$2-1}.bn{$3}"},
                            {"stage#_block#/shortcut", "layer{$1}.{$2-1}.downsample.0"},
                            {"stage#_block#/shortcut_norm", "layer{$1}.{$2-1}.downsample.1"},
                            {"classifier", "fc"}};
constexpr Rule kVgg[] = {
    {"stage#_conv#", "features.{layer}"}, {"hidden#", "classifier.{3*$1-3}"}, {"classifier", "classifier.6"}};
constexpr Rule kMobileNetV2[] = {{"stem", "features.0.0"},
                                 {"stem_norm", "features.0.1"},
                                 {"block#/expand", "features.{$1}.conv.{part}.0"},
                                 {"block#/expand_norm", "features.{$1}.conv.{part}.1"},
                                 {"block#/depthwise", "features.{$1}.conv.{part}.0"},
                                 {"block#/depthwise_norm", "features.{$1}.conv.{part}.1"},
                                 {"block#/project", "features.{$1}.conv.{part}"},
                                 {"block#/project_norm", "features.{$1}.conv.{part+1}"},
                                 {"head", "features.{head}.0"},
                                 {"head_norm", "features.{head}.1"},
                                 {"classifier", "classifier.1"}};
constexpr Rule kMobileNetV3[] = {{"stem", "features.0.0"},
                                 {"stem_norm", "features.0.1"},
                                 {"block#/squeeze_excite", "features.{$1}.block.{part}"},
                                 {"block#/expand", "features.{$1}.block.{part}.0"},
                                 {"block#/expand_norm", "features.{$1}.block.{part}.1"},
                                 {"block#/depthwise", "features.{$1}.block.{part}.0"},
                                 {"block#/depthwise_norm", "features.{$1}.block.{part}.1"},
                                 {"block#/project", "features.{$1}.block.{part}.0"},
                                 {"block#/project_norm", "features.{$1}.block.{part}.1"},
                                 {"head", "features.{head}.0"},
                                 {"head_norm", "features.{head}.1"},
                                 {"hidden", "classifier.0"},
                                 {"classifier", "classifier.3"}};
constexpr Rule kEfficientNet[] = {{"stem", "features.0.0"},
                                  {"stem_norm", "features.0.1"},
                                  {"stage#_block#/squeeze_excite", "features.{$1}.{$2-1}.block.{part}"},
                                  {"stage#_block#/expand", "features.{$1}.{$2-1}.block.{part}.0"},
                                  {"stage#_block#/expand_norm", "features.{$1}.{$2-1}.block.{part}.1"},
                                  {"stage#_block#/depthwise", "features.{$1}.{$2-1}.block.{part}.0"},
                                  {"stage#_block#/depthwise_norm", "features.{$1}.{$2-1}.block.{part}.1"},
                                  {"stage#_block#/project", "features.{$1}.{$2-1}.block.{part}.0"},
                                  {"stage#_block#/project_norm", "features.{$1}.{$2-1}.block.{part}.1"},
                                  {"head", "features.8.0"},
                                  {"head_norm", "features.8.1"},
                                  {"classifier", "classifier.1"}};
constexpr Rule kDenseNet[] = {{"stem", "features.conv0"},
                              {"stem_norm", "features.norm0"},
                              {"stage#_block#/conv#", "features.denseblock{$1}.denselayer{$2}.conv{$3}"},
                              {"stage#_block#/norm#", "features.denseblock{$1}.denselayer{$2}.norm{$3}"},
                              {"transition#/conv", "features.transition{$1}.conv"},
                              {"transition#/norm", "features.transition{$1}.norm"},
                              {"norm", "features.norm5"},
                              {"classifier", "classifier"}};
constexpr Rule kConvNeXt[] = {{"stem", "features.0.0"},
                              {"stem_norm", "features.0.1"},
                              {"stage#_block#/depthwise", "features.{2*$1-1}.{$2-1}.block.0"},
                              {"stage#_block#/norm", "features.{2*$1-1}.{$2-1}.block.2"},
                              {"stage#_block#/expand", "features.{2*$1-1}.{$2-1}.block.3", As::linear},
                              {"stage#_block#/project", "features.{2*$1-1}.{$2-1}.block.5", As::linear},
                              {"stage#_block#/layer_scale", "features.{2*$1-1}.{$2-1}"},
                              {"downsample#/norm", "features.{2*$1}.0"},
                              {"downsample#/conv", "features.{2*$1}.1"},
                              {"norm", "classifier.0"},
                              {"classifier", "classifier.2"}};

constexpr Rule kShuffleNet[] = {{"stem", "conv1.0"},
                                {"stem_norm", "conv1.1"},
                                {"stage#_block#/shortcut_depthwise", "stage{$1+1}.{$2-1}.branch1.0"},
                                {"stage#_block#/shortcut_depthwise_norm", "stage{$1+1}.{$2-1}.branch1.1"},
                                {"stage#_block#/shortcut", "stage{$1+1}.{$2-1}.branch1.2"},
                                {"stage#_block#/shortcut_norm", "stage{$1+1}.{$2-1}.branch1.3"},
                                {"stage#_block#/expand", "stage{$1+1}.{$2-1}.branch2.0"},
                                {"stage#_block#/expand_norm", "stage{$1+1}.{$2-1}.branch2.1"},
                                {"stage#_block#/depthwise", "stage{$1+1}.{$2-1}.branch2.3"},
                                {"stage#_block#/depthwise_norm", "stage{$1+1}.{$2-1}.branch2.4"},
                                {"stage#_block#/project", "stage{$1+1}.{$2-1}.branch2.5"},
                                {"stage#_block#/project_norm", "stage{$1+1}.{$2-1}.branch2.6"},
                                {"head", "conv5.0"},
                                {"head_norm", "conv5.1"},
                                {"classifier", "fc"}};
constexpr Rule kVit[] = {{"stem", "conv_proj"},
                         {"class_token", "class_token", As::tensor},
                         {"position_embedding", "encoder.pos_embedding", As::tensor},
                         {"block#/norm#", "encoder.layers.encoder_layer_{$1-1}.ln_{$2}"},
                         {"block#/qkv", "encoder.layers.encoder_layer_{$1-1}.self_attention.in_proj_"},
                         {"block#/project", "encoder.layers.encoder_layer_{$1-1}.self_attention.out_proj"},
                         {"block#/expand", "encoder.layers.encoder_layer_{$1-1}.mlp.0"},
                         {"block#/contract", "encoder.layers.encoder_layer_{$1-1}.mlp.3"},
                         {"norm", "encoder.ln"},
                         {"classifier", "heads.head"}};

// torchvision's rules end here. pytorch-cifar's ResNet:
constexpr Rule kCifarResNet[] = {{"stem", "conv1"},
                                 {"stem_norm", "bn1"},
                                 {"stage#_block#/conv#", "layer{$1}.{$2-1}.conv{$3}"},
                                 {"stage#_block#/conv#_norm", "layer{$1}.{$2-1}.bn{$3}"},
                                 {"stage#_block#/shortcut", "layer{$1}.{$2-1}.shortcut.0"},
                                 {"stage#_block#/shortcut_norm", "layer{$1}.{$2-1}.shortcut.1"},
                                 {"classifier", "linear"}};
// Hugging Face's transformers; "resnet.", "convnext." and "vit.", which stand before all but the classifier, are
// prefixes. Its query, key and value are put together before (torch_renames.h).
constexpr Rule kTransformersVit[] = {{"stem", "embeddings.patch_embeddings.projection"},
                                     {"class_token", "embeddings.cls_token", As::tensor},
                                     {"position_embedding", "embeddings.position_embeddings", As::tensor},
                                     {"block#/norm1", "layers.{$1-1}.layernorm_before"},
                                     {"block#/norm2", "layers.{$1-1}.layernorm_after"},
                                     {"block#/qkv", "layers.{$1-1}.attention.qkv"},
                                     {"block#/project", "layers.{$1-1}.attention.o_proj"},
                                     {"block#/expand", "layers.{$1-1}.mlp.fc1"},
                                     {"block#/contract", "layers.{$1-1}.mlp.fc2"},
                                     {"norm", "layernorm"},
                                     {"classifier", "classifier"}};
constexpr Rule kOldTransformersVit[] = {{"stem", "embeddings.patch_embeddings.projection"},
                                        {"class_token", "embeddings.cls_token", As::tensor},
                                        {"position_embedding", "embeddings.position_embeddings", As::tensor},
                                        {"block#/norm1", "encoder.layer.{$1-1}.layernorm_before"},
                                        {"block#/norm2", "encoder.layer.{$1-1}.layernorm_after"},
                                        {"block#/qkv", "encoder.layer.{$1-1}.attention.attention.qkv"},
                                        {"block#/project", "encoder.layer.{$1-1}.attention.output.dense"},
                                        {"block#/expand", "encoder.layer.{$1-1}.intermediate.dense"},
                                        {"block#/contract", "encoder.layer.{$1-1}.output.dense"},
                                        {"norm", "layernorm"},
                                        {"classifier", "classifier"}};
constexpr Rule kTransformersResNet[] = {
    {"stem", "embedder.embedder.convolution"},
    {"stem_norm", "embedder.embedder.normalization"},
    {"stage#_block#/conv#", "encoder.stages.{$1-1}.layers.{$2-1}.layer.{$3-1}.convolution"},
    {"stage#_block#/conv#_norm", "encoder.stages.{$1-1}.layers.{$2-1}.layer.{$3-1}.normalization"},
    {"stage#_block#/shortcut", "encoder.stages.{$1-1}.layers.{$2-1}.shortcut.convolution"},
    {"stage#_block#/shortcut_norm", "encoder.stages.{$1-1}.layers.{$2-1}.shortcut.normalization"},
    {"classifier", "classifier.1"}};
constexpr Rule kTransformersConvNeXt[] = {
    {"stem", "embeddings.patch_embeddings"},
    {"stem_norm", "embeddings.layernorm"},
    {"stage#_block#/depthwise", "encoder.stages.{$1-1}.layers.{$2-1}.dwconv"},
    {"stage#_block#/norm", "encoder.stages.{$1-1}.layers.{$2-1}.layernorm"},
    {"stage#_block#/expand", "encoder.stages.{$1-1}.layers.{$2-1}.pwconv1", As::linear},
    {"stage#_block#/project", "encoder.stages.{$1-1}.layers.{$2-1}.pwconv2", As::linear},
    {"stage#_block#/layer_scale", "encoder.stages.{$1-1}.layers.{$2-1}"},
    {"stage#_block#/response_norm", "encoder.stages.{$1-1}.layers.{$2-1}.grn"},
    {"downsample#/norm", "encoder.stages.{$1}.downsampling_layer.0"},
    {"downsample#/conv", "encoder.stages.{$1}.downsampling_layer.1"},
    {"norm", "layernorm"},
    {"classifier", "classifier"}};
// The authors' own ConvNeXt.
constexpr Rule kOriginalConvNeXt[] = {{"stem", "downsample_layers.0.0"},
                                      {"stem_norm", "downsample_layers.0.1"},
                                      {"stage#_block#/depthwise", "stages.{$1-1}.{$2-1}.dwconv"},
                                      {"stage#_block#/norm", "stages.{$1-1}.{$2-1}.norm"},
                                      {"stage#_block#/expand", "stages.{$1-1}.{$2-1}.pwconv1", As::linear},
                                      {"stage#_block#/project", "stages.{$1-1}.{$2-1}.pwconv2", As::linear},
                                      {"stage#_block#/layer_scale", "stages.{$1-1}.{$2-1}"},
                                      {"stage#_block#/response_norm", "stages.{$1-1}.{$2-1}.grn"},
                                      {"downsample#/norm", "downsample_layers.{$1}.0"},
                                      {"downsample#/conv", "downsample_layers.{$1}.1"},
                                      {"norm", "norm"},
                                      {"classifier", "head"}};
// timm. Its ResNet and DenseNet have torchvision's names.
constexpr Rule kTimmVgg[] = {
    {"stage#_conv#", "features.{layer}"}, {"hidden#", "pre_logits.fc{$1}", As::convolution}, {"classifier", "head.fc"}};
constexpr Rule kTimmMobileNetV2[] = {{"stem", "conv_stem"},
                                     {"stem_norm", "bn1"},
                                     {"block1/depthwise", "blocks.0.0.conv_dw"},
                                     {"block1/depthwise_norm", "blocks.0.0.bn1"},
                                     {"block1/project", "blocks.0.0.conv_pw"},
                                     {"block1/project_norm", "blocks.0.0.bn2"},
                                     {"block#/expand", "blocks.{stage}.{index}.conv_pw"},
                                     {"block#/expand_norm", "blocks.{stage}.{index}.bn1"},
                                     {"block#/depthwise", "blocks.{stage}.{index}.conv_dw"},
                                     {"block#/depthwise_norm", "blocks.{stage}.{index}.bn2"},
                                     {"block#/project", "blocks.{stage}.{index}.conv_pwl"},
                                     {"block#/project_norm", "blocks.{stage}.{index}.bn3"},
                                     {"head", "conv_head"},
                                     {"head_norm", "bn2"},
                                     {"classifier", "classifier"}};
constexpr Rule kTimmMobileNetV3[] = {{"stem", "conv_stem"},
                                     {"stem_norm", "bn1"},
                                     {"block#/squeeze_excite", "blocks.{stage}.{index}.se"},
                                     {"block1/depthwise", "blocks.0.0.conv_dw"},
                                     {"block1/depthwise_norm", "blocks.0.0.bn1"},
                                     {"block1/project", "blocks.0.0.conv_pw"},
                                     {"block1/project_norm", "blocks.0.0.bn2"},
                                     {"block#/expand", "blocks.{stage}.{index}.conv_pw"},
                                     {"block#/expand_norm", "blocks.{stage}.{index}.bn1"},
                                     {"block#/depthwise", "blocks.{stage}.{index}.conv_dw"},
                                     {"block#/depthwise_norm", "blocks.{stage}.{index}.bn2"},
                                     {"block#/project", "blocks.{stage}.{index}.conv_pwl"},
                                     {"block#/project_norm", "blocks.{stage}.{index}.bn3"},
                                     {"head", "blocks.{stages}.0.conv"},
                                     {"head_norm", "blocks.{stages}.0.bn1"},
                                     {"hidden", "conv_head", As::convolution},
                                     {"classifier", "classifier"}};
constexpr Rule kTimmEfficientNet[] = {{"stem", "conv_stem"},
                                      {"stem_norm", "bn1"},
                                      {"stage#_block#/squeeze_excite", "blocks.{$1-1}.{$2-1}.se"},
                                      {"stage1_block1/depthwise", "blocks.0.0.conv_dw"},
                                      {"stage1_block1/depthwise_norm", "blocks.0.0.bn1"},
                                      {"stage1_block1/project", "blocks.0.0.conv_pw"},
                                      {"stage1_block1/project_norm", "blocks.0.0.bn2"},
                                      {"stage#_block#/expand", "blocks.{$1-1}.{$2-1}.conv_pw"},
                                      {"stage#_block#/expand_norm", "blocks.{$1-1}.{$2-1}.bn1"},
                                      {"stage#_block#/depthwise", "blocks.{$1-1}.{$2-1}.conv_dw"},
                                      {"stage#_block#/depthwise_norm", "blocks.{$1-1}.{$2-1}.bn2"},
                                      {"stage#_block#/project", "blocks.{$1-1}.{$2-1}.conv_pwl"},
                                      {"stage#_block#/project_norm", "blocks.{$1-1}.{$2-1}.bn3"},
                                      {"head", "conv_head"},
                                      {"head_norm", "bn2"},
                                      {"classifier", "classifier"}};
constexpr Rule kTimmConvNeXt[] = {{"stem", "stem.0"},
                                  {"stem_norm", "stem.1"},
                                  {"stage#_block#/depthwise", "stages.{$1-1}.blocks.{$2-1}.conv_dw"},
                                  {"stage#_block#/norm", "stages.{$1-1}.blocks.{$2-1}.norm"},
                                  {"stage#_block#/expand", "stages.{$1-1}.blocks.{$2-1}.mlp.fc1", As::linear},
                                  {"stage#_block#/project", "stages.{$1-1}.blocks.{$2-1}.mlp.fc2", As::linear},
                                  {"stage#_block#/layer_scale", "stages.{$1-1}.blocks.{$2-1}"},
                                  {"stage#_block#/response_norm", "stages.{$1-1}.blocks.{$2-1}.mlp.grn"},
                                  {"downsample#/norm", "stages.{$1}.downsample.0"},
                                  {"downsample#/conv", "stages.{$1}.downsample.1"},
                                  {"norm", "head.norm"},
                                  {"classifier", "head.fc"}};
constexpr Rule kTimmMobileVit[] = {
    {"stem", "stem.conv"},
    {"stem_norm", "stem.bn"},
    {"stage#_block#/expand", "stages.{$1-1}.{$2-1}.conv1_1x1.conv"},
    {"stage#_block#/expand_norm", "stages.{$1-1}.{$2-1}.conv1_1x1.bn"},
    {"stage#_block#/depthwise", "stages.{$1-1}.{$2-1}.conv2_kxk.conv"},
    {"stage#_block#/depthwise_norm", "stages.{$1-1}.{$2-1}.conv2_kxk.bn"},
    {"stage#_block#/project", "stages.{$1-1}.{$2-1}.conv3_1x1.conv"},
    {"stage#_block#/project_norm", "stages.{$1-1}.{$2-1}.conv3_1x1.bn"},
    {"stage#_block#/local", "stages.{$1-1}.{$2-1}.conv_kxk.conv"},
    {"stage#_block#/local_norm", "stages.{$1-1}.{$2-1}.conv_kxk.bn"},
    {"stage#_block#/enter", "stages.{$1-1}.{$2-1}.conv_1x1"},
    {"stage#_block#/transformer#/norm#", "stages.{$1-1}.{$2-1}.transformer.{$3-1}.norm{$4}"},
    {"stage#_block#/transformer#/qkv", "stages.{$1-1}.{$2-1}.transformer.{$3-1}.attn.qkv"},
    {"stage#_block#/transformer#/project", "stages.{$1-1}.{$2-1}.transformer.{$3-1}.attn.proj"},
    {"stage#_block#/transformer#/expand", "stages.{$1-1}.{$2-1}.transformer.{$3-1}.mlp.fc1"},
    {"stage#_block#/transformer#/contract", "stages.{$1-1}.{$2-1}.transformer.{$3-1}.mlp.fc2"},
    {"stage#_block#/norm", "stages.{$1-1}.{$2-1}.norm"},
    {"stage#_block#/leave", "stages.{$1-1}.{$2-1}.conv_proj.conv"},
    {"stage#_block#/leave_norm", "stages.{$1-1}.{$2-1}.conv_proj.bn"},
    {"stage#_block#/fuse", "stages.{$1-1}.{$2-1}.conv_fusion.conv"},
    {"stage#_block#/fuse_norm", "stages.{$1-1}.{$2-1}.conv_fusion.bn"},
    {"head", "final_conv.conv"},
    {"head_norm", "final_conv.bn"},
    {"classifier", "head.fc"}};
constexpr Rule kTimmVit[] = {{"stem", "patch_embed.proj"},
                             {"class_token", "cls_token", As::tensor},
                             {"position_embedding", "pos_embed", As::tensor},
                             {"block#/norm#", "blocks.{$1-1}.norm{$2}"},
                             {"block#/qkv", "blocks.{$1-1}.attn.qkv"},
                             {"block#/project", "blocks.{$1-1}.attn.proj"},
                             {"block#/layer_scale#", "blocks.{$1-1}.ls{$2}"},
                             {"block#/expand", "blocks.{$1-1}.mlp.fc1"},
                             {"block#/contract", "blocks.{$1-1}.mlp.fc2"},
                             {"norm", "norm"},
                             {"classifier", "head"}};

/// How a program names a network's tensors.
struct Scheme {
  std::string_view program;
  std::span<const Rule> rules;
  std::string_view reduce = "fc1", expand = "fc2";    ///< the names of the two layers of squeeze-and-excitation
  std::string_view layer_scale = "layer_scale";       ///< with two extents of 1 after the channels; else without
  std::string_view scale = "weight", shift = "bias";  ///< those of a global response norm
  bool response_axes = false;                         ///< with three extents of 1 before its channels
  bool convolves = false;                             ///< 1x1 convolutions where rules say linear
  float epsilon = 0;                                  ///< that program's for batch norms, where the zoo's is another
};
constexpr std::string_view kTorchvision = "torchvision", kTimm = "timm", kTransformers = "transformers",
                           kOldTransformers = "transformers 4", kAuthors = "the authors";

constexpr Scheme kResNets[] = {{kTorchvision, kResNet}, {kTransformers, kTransformersResNet}};
constexpr Scheme kCifarResNets[] = {{kTorchvision, kResNet}, {"pytorch-cifar", kCifarResNet}};
constexpr Scheme kVggs[] = {{kTorchvision, kVgg}, {kTimm, kTimmVgg}};
constexpr Scheme kMobileNetV2s[] = {{kTorchvision, kMobileNetV2}, {kTimm, kTimmMobileNetV2}};
constexpr Scheme kMobileNetV3s[] = {
    {kTorchvision, kMobileNetV3},
    {.program = kTimm, .rules = kTimmMobileNetV3, .reduce = "conv_reduce", .expand = "conv_expand", .epsilon = 1e-5f}};
constexpr Scheme kEfficientNets[] = {
    {kTorchvision, kEfficientNet},
    {.program = kTimm, .rules = kTimmEfficientNet, .reduce = "conv_reduce", .expand = "conv_expand"}};
constexpr Scheme kDenseNets[] = {{kTorchvision, kDenseNet}};
constexpr Scheme kConvNeXts[] = {
    {kTorchvision, kConvNeXt},
    {.program = kTimm, .rules = kTimmConvNeXt, .layer_scale = "gamma"},
    {.program = kTransformers, .rules = kTransformersConvNeXt, .layer_scale = "layer_scale_parameter"},
    {.program = kAuthors, .rules = kOriginalConvNeXt, .layer_scale = "gamma"}};
constexpr Scheme kV2Transformers{.program = kTransformers, .rules = kTransformersConvNeXt, .response_axes = true},
    kV2Authors{
        .program = kAuthors, .rules = kOriginalConvNeXt, .scale = "gamma", .shift = "beta", .response_axes = true};
constexpr Scheme kConvNeXtV2s[] = {{.program = kTimm, .rules = kTimmConvNeXt}, kV2Transformers, kV2Authors};
constexpr Scheme kSmallConvNeXtV2s[] = {
    {.program = kTimm, .rules = kTimmConvNeXt, .convolves = true}, kV2Transformers, kV2Authors};
constexpr Scheme kMobileVits[] = {{kTimm, kTimmMobileVit}};
constexpr Scheme kShuffleNets[] = {{kTorchvision, kShuffleNet}};
constexpr Scheme kVits[] = {{kTorchvision, kVit},
                            {.program = kTimm, .rules = kTimmVit, .layer_scale = "gamma"},
                            {kTransformers, kTransformersVit},
                            {kOldTransformers, kOldTransformersVit}};
constexpr Scheme kTimmVits[] = {{.program = kTimm, .rules = kTimmVit, .layer_scale = "gamma"},
                                {kTransformers, kTransformersVit},
                                {kOldTransformers, kOldTransformersVit}};
constexpr Scheme kDeit3s[] = {{.program = kTimm, .rules = kTimmVit, .layer_scale = "gamma"}};

/// Blocks of each of timm's stages, where ours are numbered through.
constexpr int kStagesV2[] = {1, 2, 3, 4, 3, 3, 1}, kStagesV3Small[] = {1, 2, 3, 2, 3},
              kStagesV3Large[] = {1, 2, 3, 4, 2, 3};

struct Network {
  std::string_view name, function;
  std::span<const Scheme> schemes;  ///< torchvision's first; where it has none, timm's
  bool has_width = false;
  std::span<const int> stages = {};
};
constexpr Network kNetworks[] = {{"resnet18", "resnet18", kResNets},
                                 {"resnet18_cifar", "resnet18", kCifarResNets},
                                 {"resnet34", "resnet34", kResNets},
                                 {"resnet50", "resnet50", kResNets},
                                 {"resnet101", "resnet101", kResNets},
                                 {"vgg11", "vgg11", kVggs},
                                 {"vgg16", "vgg16", kVggs},
                                 {"mobilenet_v2", "mobilenet_v2", kMobileNetV2s, true, kStagesV2},
                                 {"mobilenet_v3_small", "mobilenet_v3_small", kMobileNetV3s, true, kStagesV3Small},
                                 {"mobilenet_v3_large", "mobilenet_v3_large", kMobileNetV3s, true, kStagesV3Large},
                                 {"efficientnet_b0", "efficientnet_b0", kEfficientNets},
                                 {"densenet121", "densenet121", kDenseNets},
                                 {"convnext_tiny", "convnext_tiny", kConvNeXts},
                                 {"convnextv2_atto", "convnextv2_atto", kSmallConvNeXtV2s},
                                 {"convnextv2_tiny", "convnextv2_tiny", kConvNeXtV2s},
                                 {"shufflenet_v2_x1_0", "shufflenet_v2_x1_0", kShuffleNets},
                                 {"mobilevit_s", "mobilevit_s", kMobileVits},
                                 {"vit_tiny_16", "vit_tiny_patch16_224", kTimmVits},
                                 {"vit_small_16", "vit_small_patch16_224", kTimmVits},
                                 {"vit_base_16", "vit_b_16", kVits},
                                 {"vit_base_32", "vit_b_32", kVits},
                                 {"vit_large_16", "vit_l_16", kVits},
                                 {"deit3_small_16", "deit3_small_patch16_224", kDeit3s},
                                 {"deit3_base_16", "deit3_base_patch16_224", kDeit3s}};

const Network* find_network(std::string_view name) {
  const auto* found = std::ranges::find(kNetworks, name, &Network::name);
  return found == std::end(kNetworks) ? nullptr : found;
}

const Network& network_of(std::string_view name) {
  if (const Network* network = find_network(name)) return *network;
  throw ConfigError(fmt::format("no other program's names are known for the zoo's {}", name));
}

const Scheme& scheme_of(const Network& network, std::string_view program) {
  if (program.empty()) return network.schemes.front();
  const auto found = std::ranges::find(network.schemes, program, &Scheme::program);
  if (found == network.schemes.end()) throw Error(fmt::format("no rules for {}'s names of {}", program, network.name));
  return *found;
}

/// By its name in terms: numbers of a name, and where a node stands.
using Numbers = std::map<std::string, std::int64_t, std::less<>>;

/// The numbers that each # stands for; nothing where `name` is not like `pattern`.
std::optional<Numbers> matched(std::string_view name, std::string_view pattern) {
  Numbers numbers;
  for (const char c : pattern) {
    if (c != '#') {
      if (name.empty() || name.front() != c) return std::nullopt;
      name.remove_prefix(1);
      continue;
    }
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), value);
    if (error != std::errc()) return std::nullopt;
    name.remove_prefix(static_cast<std::size_t>(end - name.data()));
    numbers[fmt::format("${}", numbers.size() + 1)] = value;
  }
  return name.empty() ? std::optional(numbers) : std::nullopt;
}

/// "2*$1-1".
std::int64_t value_of(std::string_view term, const Numbers& numbers) {
  std::int64_t factor = 1, more = 0;
  if (const std::size_t star = term.find('*'); star != std::string_view::npos) {
    std::from_chars(term.data(), term.data() + star, factor);
    term.remove_prefix(star + 1);
  }
  const std::size_t sign = term.find_first_of("+-");
  if (sign != std::string_view::npos) {
    std::from_chars(term.data() + sign + 1, term.data() + term.size(), more);
    if (term[sign] == '-') more = -more;
  }
  return factor * numbers.find(term.substr(0, sign))->second + more;
}

std::string filled(std::string_view torch, const Numbers& numbers) {
  std::string text;
  for (std::size_t at = 0; at < torch.size(); ++at) {
    if (torch[at] != '{') {
      text += torch[at];
      continue;
    }
    const std::size_t end = torch.find('}', at);
    text += fmt::format("{}", value_of(torch.substr(at + 1, end - at - 1), numbers));
    at = end;
  }
  return text;
}

/// Walks over a graph's nodes and counts what modules of other programs are numbered by.
class Positions {
 public:
  /// `blocks` of the whole network, `stages` of a network whose blocks are numbered through.
  Positions(std::int64_t blocks, std::span<const int> stages) : blocks_(blocks), stages_(stages) {}

  /// Returns the next node's numbers. `part`: from 0, among the convolutions and squeeze-excitations of its block, the
  /// same for a norm after one; `layer`: among convolutions, their activations and pools of the network; `head`: after
  /// the last block; `stage` and `index`: of its block, from 0; `stages`: how many there are.
  Numbers next(const GraphNode& node) {
    const std::string_view kind = node.layer->kind();
    const bool convolves = kind == "conv2d" || kind == "depthwise_conv2d";
    if (const std::string block = block_of(node.name); block != block_) {
      block_ = block;
      part_ = -1;
    }
    if (convolves || kind == "squeeze_excite") ++part_;
    Numbers numbers = {{"part", part_}, {"layer", layer_}, {"head", blocks_ + 1}, {"stages", std::ssize(stages_)}};
    if (const auto block = matched(block_, "block#")) {
      std::int64_t stage = 0, index = block->at("$1") - 1;
      for (; stage < std::ssize(stages_) && index >= stages_[static_cast<std::size_t>(stage)]; ++stage)
        index -= stages_[static_cast<std::size_t>(stage)];
      numbers.insert({{"stage", stage}, {"index", index}});
    }
    layer_ += convolves ? 2 : kind == "max_pool" ? 1 : 0;
    return numbers;
  }

 private:
  std::int64_t blocks_;
  std::span<const int> stages_;
  std::string block_;
  std::int64_t part_ = -1, layer_ = 0;
};

std::int64_t blocks_of(const Graph& graph) {
  std::int64_t blocks = 0;
  for (const GraphNode& node : graph.nodes())
    if (const auto numbers = matched(block_of(node.name), "block#")) blocks = std::max(blocks, numbers->at("$1"));
  return blocks;
}

/// A module's name and rule.
struct Module {
  std::string name;
  As as = As::same;
};

Module module_of(const Scheme& scheme, const std::string& node, Numbers numbers) {
  for (const Rule& rule : scheme.rules)
    if (auto captured = matched(node, rule.own)) {
      numbers.merge(*captured);
      return {filled(rule.torch, numbers), rule.as};
    }
  throw Error(fmt::format("no rule names {}'s module of '{}'", scheme.program, node));
}

/// Returns the name of a tensor in the other program's module, by the kind of layer.
std::string torch_suffix(const Scheme& scheme, std::string_view kind, std::string_view tensor) {
  if (kind == "layer_scale") return std::string(scheme.layer_scale);
  if (kind == "squeeze_excite") {
    const std::size_t slash = tensor.find('/');
    return fmt::format("{}.{}", tensor.substr(0, slash) == "reduce" ? scheme.reduce : scheme.expand,
                       tensor.substr(slash + 1));
  }
  if (kind == "global_response_norm") return std::string(tensor == "scale" ? scheme.scale : scheme.shift);
  if (tensor == "scale") return "weight";
  if (tensor == "shift") return "bias";
  return std::string(tensor == "running_variance" ? "running_var" : tensor);
}

/// The image that the node's input was before it was flattened; rank 0 where it was none.
Shape flattened_image(const Graph& graph, NodeId node) {
  for (NodeId from = graph.node(node).inputs[0]; from != 0; from = graph.node(from).inputs[0]) {
    const std::string_view kind = graph.node(from).layer->kind();
    if (kind == "flatten") return graph.input_shapes(from)[0];
    if (kind != "dropout" && kind != "activation") break;
  }
  return {};
}

/// Sets the torch shape and order of a weight.
void lay_out(TorchvisionTensor& tensor, const Graph& graph, NodeId node, As as, const Scheme& scheme) {
  const Shape& own = tensor.own_shape;
  const std::string_view kind = graph.node(node).layer->kind();
  tensor.torch_shape = tensor.own_axes = own;
  if (kind == "conv2d" && own.rank() == 4) {
    tensor.to = {0, 3, 1, 2};
    tensor.torch_shape =
        as == As::linear && !scheme.convolves ? Shape{own[0], own[3]} : Shape{own[0], own[3], own[1], own[2]};
  } else if (kind == "depthwise_conv2d" && own.rank() == 3) {
    tensor.own_axes = {own[0], own[1], own[2], 1};
    tensor.to = {2, 3, 0, 1};
    tensor.torch_shape = {own[2], 1, own[0], own[1]};
  } else if (kind == "dense" && own.rank() == 2) {
    const Shape image = flattened_image(graph, node);
    if (as == As::convolution)
      tensor.torch_shape =
          image.rank() == 3 ? Shape{own[0], image[2], image[0], image[1]} : Shape{own[0], own[1], 1, 1};
    if (image.rank() != 3) return;
    tensor.own_axes = {own[0], image[0], image[1], image[2]};
    tensor.to = {0, 3, 1, 2};
  } else if (kind == "squeeze_excite" && own.rank() == 2) {
    tensor.torch_shape = {own[0], own[1], 1, 1};
  } else if (as == As::tensor) {
    const std::int64_t channels = own[own.rank() - 1];
    tensor.torch_shape = {1, own.elements() / channels, channels};
  } else if (kind == "global_response_norm" && scheme.response_axes) {
    tensor.torch_shape = {1, 1, 1, own[0]};
  } else if (kind == "layer_scale" && scheme.layer_scale == "layer_scale") {
    tensor.torch_shape = {own[0], 1, 1};
  }
}

/// Names and shapes of what a node's layer declares.
std::vector<std::pair<std::string, Shape>> declared(const Graph& graph, NodeId id) {
  const GraphNode& node = graph.node(id);
  ParameterArena parameters;
  BufferArena buffers;
  LayerScope scope(node.name, parameters, buffers);
  (void)node.layer->bind(scope, buffers, graph.input_shapes(id));
  std::vector<std::pair<std::string, Shape>> tensors;
  for (const Parameter& parameter : parameters.all()) tensors.emplace_back(parameter.name(), parameter.shape());
  for (const Buffer& buffer : buffers.all()) tensors.emplace_back(buffer.name, buffer.shape);
  return tensors;
}

/// Calls `copy` with each element's place in torch's order and in ours.
template <class Copy>
void for_each_element(const TorchvisionTensor& tensor, const Copy& copy) {
  const Shape& axes = tensor.own_axes;
  std::int64_t strides[4] = {axes[1] * axes[2] * axes[3], axes[2] * axes[3], axes[3], 1}, extents[4], steps[4];
  for (std::size_t i = 0; i < 4; ++i) {
    extents[i] = axes[tensor.to[i]];
    steps[i] = strides[tensor.to[i]];
  }
  std::int64_t at = 0;
  for (std::int64_t a = 0; a < extents[0]; ++a)
    for (std::int64_t b = 0; b < extents[1]; ++b)
      for (std::int64_t c = 0; c < extents[2]; ++c)
        for (std::int64_t d = 0; d < extents[3]; ++d)
          copy(at++, a * steps[0] + b * steps[1] + c * steps[2] + d * steps[3]);
}

}  // namespace

bool has_known_names(std::string_view zoo_name) { return find_network(zoo_name) != nullptr; }

std::string_view naming_program(std::string_view zoo_name) { return network_of(zoo_name).schemes.front().program; }

bool torchvision_has_width(std::string_view zoo_name) { return network_of(zoo_name).has_width; }

std::string torchvision_function(std::string_view zoo_name) { return std::string(network_of(zoo_name).function); }

std::string torchvision_changes(std::string_view zoo_name) {
  if (zoo_name != "resnet18_cifar") return "";
  return "model.conv1, model.maxpool = torch.nn.Conv2d(3, 64, 3, padding=1, bias=False), torch.nn.Identity()";
}

std::vector<std::string_view> naming_programs(std::string_view zoo_name) {
  std::vector<std::string_view> programs;
  for (const Scheme& scheme : network_of(zoo_name).schemes) programs.push_back(scheme.program);
  return programs;
}

float other_epsilon(std::string_view zoo_name, std::string_view program) {
  return scheme_of(network_of(zoo_name), program).epsilon;
}

std::string torchvision_classifier(std::string_view zoo_name, std::string_view program) {
  return module_of(scheme_of(network_of(zoo_name), program), "classifier", {}).name + ".weight";
}

std::vector<TorchvisionTensor> torchvision_tensors(std::string_view zoo_name, const Graph& graph,
                                                   std::string_view program) {
  const Network& network = network_of(zoo_name);
  const Scheme& scheme = scheme_of(network, program);
  Positions positions(blocks_of(graph), network.stages);
  std::vector<TorchvisionTensor> tensors;
  for (NodeId id = 1; id <= graph.output(); ++id) {
    const GraphNode& node = graph.node(id);
    const Numbers numbers = positions.next(node);
    for (const auto& [name, shape] : declared(graph, id)) {
      const Module module = module_of(scheme, node.name, numbers);
      const std::string suffix =
          torch_suffix(scheme, node.layer->kind(), std::string_view(name).substr(node.name.size() + 1));
      TorchvisionTensor tensor{.own = name, .own_shape = shape, .torch = module.name};
      if (module.as != As::tensor) tensor.torch += (module.name.ends_with('_') ? "" : ".") + suffix;
      lay_out(tensor, graph, id, module.as, scheme);
      tensors.push_back(std::move(tensor));
    }
  }
  return tensors;
}

std::vector<std::byte> own_order(const TorchvisionTensor& tensor, const std::vector<std::byte>& torch) {
  if (tensor.to.empty()) return torch;
  std::vector<std::byte> own(torch.size());
  for_each_element(tensor, [&](std::int64_t from, std::int64_t to) {
    std::memcpy(own.data() + to * 4, torch.data() + from * 4, sizeof(float));
  });
  return own;
}

std::vector<std::byte> torch_order(const TorchvisionTensor& tensor, const std::vector<std::byte>& own) {
  if (tensor.to.empty()) return own;
  std::vector<std::byte> torch(own.size());
  for_each_element(tensor, [&](std::int64_t to, std::int64_t from) {
    std::memcpy(torch.data() + to * 4, own.data() + from * 4, sizeof(float));
  });
  return torch;
}

}  // namespace bantam::run
