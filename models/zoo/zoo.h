// The zoo: well-known networks by name, the same as torchvision's where it has them, and else as timm's.
//
// Names of nodes, of which parameters and buffers take theirs ("stage1_block2/conv1_norm/scale"):
//
//   stem, stem_norm, stem_pool      first convolution, its normalisation, the pool after it
//   stageS_blockB/…, blockN/…       block B of stage S, or block N of the network, counted from 1: a unit of recompute
//   X, X_norm                       a convolution and the batch normalisation after it
//   …/conv1, …/shortcut, …/add      residual blocks: convolutions of the branch, that of the shortcut, the sum
//   …/expand, …/depthwise, …/squeeze_excite, …/project, …/drop_path      mobile networks' and ConvNeXt's blocks
//   …/norm1, …/conv1, …             blocks that normalise before they convolve (wide_resnet, densenet)
//   …/norm1, …/qkv, …/attention, …/project, …/norm2, …/expand, …/contract      blocks of transformers
//   head, pool, hidden, dropout, classifier      the end; classifier is the last layer with weights
//
// Nodes with parameters stand in the order of the modules with parameters in torchvision's state_dict, but for
// ConvNeXt's layer_scale, which is the first of its block there, and the transformers' tokens and positions. Each
// network's comment has torchvision's names.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bantam/base/api.h"
#include "bantam/base/shape.h"
#include "bantam/engine/graph/graph.h"

BANTAM_API_BEGIN
namespace bantam::models {

/// The input, classes and width with which a network of the zoo is built.
struct ZooOptions {
  Shape input = {};  ///< (height, width, channels)
  std::int64_t classes = 1000;
  double width = 1.0;      ///< factor of the channels, where the network has one
  double drop_path = 0.0;  ///< stochastic depth, where the network has it: the last block's rate, from 0 linearly
};

/// A network of the zoo.
struct ZooModel {
  std::string_view name;
  ZooOptions defaults;
  bool has_width = false, has_drop_path = false;
  /// Throws ShapeError where the input is too small.
  Graph (*build)(const ZooOptions& options);
};

/// All networks, those for small images first.
std::span<const ZooModel> zoo();
/// Null where there is none.
const ZooModel* find_zoo_model(std::string_view name);
std::vector<std::string> zoo_names();

// Weights of convolutions before a ReLU are He-normal.

/// The CIFAR-10 example of Keras' style: sepconv 32, pool, sepconv 64, dense 64, dense; Glorot-uniform. 695,493
/// parameters.
Graph separable_cnn(const ZooOptions& options);
/// ResNet-18 for small images (He et al. 2016): a 3x3 stem of 64 channels and no max-pool. 11,173,962 parameters.
Graph resnet18_cifar(const ZooOptions& options);
/// The paper's networks for CIFAR: a 3x3 stem and three stages of 16, 32, 64 channels. Where a stage begins, the
/// shortcut is a 1x1 convolution with normalisation (the paper's option B; with its option A, which pads with zeros,
/// there are 2,752 parameters less). 272,474 and 855,770 parameters.
Graph resnet20(const ZooOptions& options);
Graph resnet56(const ZooOptions& options);
/// WRN-28-10 (Zagoruyko and Komodakis 2016) without dropout; `width` 0.1 is WRN-28-1. 36,479,194 parameters; 36,536,884
/// of 100 classes.
Graph wide_resnet28_10(const ZooOptions& options);

/// VGG without batch normalisation. The first dense layer reads stage 5 as it is, 7x7 pixels for 224x224 (torchvision
/// pools other sizes to 7x7). 132,863,336 and 138,357,544 parameters. torchvision: stageS_convI is features.K, the
/// convolutions in order; hidden1, hidden2, classifier are classifier.0, .3, .6, hidden1 reading (channel, row,
/// column).
Graph vgg11(const ZooOptions& options);
Graph vgg16(const ZooOptions& options);
/// Residual networks; the stride of a bottleneck is on its 3x3 convolution (v1.5). 11,689,512, 21,797,672, 25,557,032,
/// 44,549,160 parameters. torchvision: stem, stem_norm are conv1, bn1; stageS_blockB is layerS.(B-1) with conv1, bn1
/// (conv1_norm), …, downsample.0 (shortcut), downsample.1 (shortcut_norm); classifier is fc.
Graph resnet18(const ZooOptions& options);
Graph resnet34(const ZooOptions& options);
Graph resnet50(const ZooOptions& options);
Graph resnet101(const ZooOptions& options);
/// DenseNet-121 (Huang et al. 2017). 7,978,856 parameters. torchvision, below features: conv0, norm0 (stem, stem_norm),
/// denseblockS.denselayerB.norm1, conv1, norm2, conv2, transitionS.norm, conv, norm5 (norm); classifier is classifier.
Graph densenet121(const ZooOptions& options);
/// MobileNet v1 (Howard et al. 2017); `width` is its α. 4,231,976 parameters.
Graph mobilenet_v1(const ZooOptions& options);
/// MobileNet v2 (Sandler et al. 2018); channels times `width` are multiples of 8. 3,504,872 parameters. torchvision:
/// stem is features.0, head features.18, each with .0 (convolution) and .1 (norm); blockN is features.N.conv with
/// 0.0, 0.1 (expand), 1.0, 1.1 (depthwise), 2 and 3 (project), in block1 0.0, 0.1 (depthwise), 1 and 2 (project);
/// classifier is classifier.1.
Graph mobilenet_v2(const ZooOptions& options);
/// MobileNet v3 (Howard et al. 2019); channels as v2's. Normalisations have epsilon 1e-3 and momentum 0.01. 2,542,856
/// and 5,483,032 parameters. torchvision: stem is features.0, head the last of features, each with .0 and .1; blockN is
/// features.N.block with 0.0, 0.1 (expand), 1.0, 1.1 (depthwise), 2.fc1, 2.fc2 (squeeze_excite/reduce, expand, as 1x1
/// convolutions), 3.0, 3.1 (project), where numbers count only what the block has; hidden is classifier.0, classifier
/// is classifier.3.
Graph mobilenet_v3_small(const ZooOptions& options);
Graph mobilenet_v3_large(const ZooOptions& options);
/// EfficientNet-B0 (Tan and Le 2019), with stochastic depth up to `drop_path` (0.2); channels times `width` are
/// multiples of 8. 5,288,548 parameters. torchvision: stem is features.0, head features.8; stageS_blockB is
/// features.S.(B-1).block, as MobileNet v3's; classifier is classifier.1.
Graph efficientnet_b0(const ZooOptions& options);
/// ConvNeXt-T (Liu et al. 2022), with stochastic depth up to `drop_path` (0.1); LeCun-normal. 28,589,128 parameters.
/// torchvision: stem, stem_norm are features.0.0, .1; stageS_blockB is features.(2S-1).(B-1) with layer_scale, block.0
/// (depthwise), .2 (norm), .3 (expand), .5 (project), which are dense layers there; downsampleS is features.(2S) with 0
/// (norm), 1 (conv); norm is classifier.0, classifier classifier.2.
Graph convnext_tiny(const ZooOptions& options);

/// ConvNeXt V2 (Woo et al. 2023): global response normalisation in place of layer scale. 3,708,400 and 28,635,496
/// parameters. timm: as its convnext_tiny, and …/response_norm is mlp.grn.
Graph convnextv2_atto(const ZooOptions& options);
Graph convnextv2_tiny(const ZooOptions& options);
/// ShuffleNet V2 (Ma et al. 2018). 2,278,604 parameters. torchvision: stem is conv1, head conv5, each with .0 and .1;
/// stageS_blockB is stage(S+1).(B-1) with branch1.0 to .3 (shortcut_depthwise, shortcut), which a stage's first block
/// has, and branch2.0, .1 (expand), .3, .4 (depthwise), .5, .6 (project); classifier is fc.
Graph shufflenet_v2_x1_0(const ZooOptions& options);

/// MobileViT-S (Mehta and Rastegari 2022), for images whose sides are multiples of 64. 5,578,632 parameters. timm: stem
/// is stem, head final_conv, each with .conv and .bn; stageS_blockB is stages.(S-1).(B-1) with conv1_1x1 (expand),
/// conv2_kxk (depthwise), conv3_1x1 (project), or with conv_kxk (local), conv_1x1 (enter), transformer.(T-1)
/// (transformerT) as vit's blocks, norm, conv_proj (leave), conv_fusion (fuse); classifier is head.fc.
Graph mobilevit_s(const ZooOptions& options);

/// Vision transformers (Dosovitskiy et al. 2021) with a class token; the number is the patches' side, of which the
/// image's sides are multiples. In the last block the class token alone is projected and goes through the MLP: the
/// same function as of all tokens. Stochastic depth up to `drop_path` (0). Weights are normal of deviation 0.02, the
/// stem's PyTorch's, as timm's. 5,717,416, 22,050,664, 86,567,656, 88,224,232 and 304,326,632 parameters. torchvision
/// has the last three: stem is conv_proj, position_embedding encoder.pos_embedding, blockN is
/// encoder.layers.encoder_layer_(N-1) with ln_1, ln_2, self_attention.in_proj (qkv), out_proj (project), mlp.0
/// (expand), mlp.3 (contract), norm is encoder.ln, classifier heads.head. timm: patch_embed.proj, cls_token, pos_embed,
/// blocks.(N-1) with norm1, attn.qkv, attn.proj, norm2, mlp.fc1, mlp.fc2; norm, head.
Graph vit_tiny_16(const ZooOptions& options);
Graph vit_small_16(const ZooOptions& options);
Graph vit_base_16(const ZooOptions& options);
Graph vit_base_32(const ZooOptions& options);
Graph vit_large_16(const ZooOptions& options);
/// DeiT III (Touvron et al. 2022): as vit_small_16 and vit_base_16, but with layer scale (1e-6), and position
/// embeddings without one of the class token. 22,059,496 and 86,585,320 parameters. timm: layer_scale1, layer_scale2
/// are ls1.gamma, ls2.gamma.
Graph deit3_small_16(const ZooOptions& options);
Graph deit3_base_16(const ZooOptions& options);

/// U-Net (Ronneberger et al. 2015) for masks: the output has the image's height and width and a value a class. Its 3x3
/// convolutions are padded and normalised; 2x2 transposed convolutions enlarge. Height and width are multiples of 16.
/// down1 to down5 and up4 to up1 are blocks of conv1 and conv2; up4/upsample doubles down5's image, up4/concat has
/// down4's channels first. 31,037,698 parameters.
Graph unet(const ZooOptions& options);

}  // namespace bantam::models
BANTAM_API_END
