// The table of layers, a row each.
#include "bantam/engine/layers/layers.h"
#include "bantam/engine/layers/shared_options.h"

namespace bantam {
namespace layers {

// Each is defined in the file of its name, or in the one that its row names.
using LayerReader = LayerPtr(ConfigMap& options);
LayerReader read_conv2d, read_depthwise_conv2d, read_separable_conv2d, read_dense, read_batch_norm, read_max_pool,
    read_average_pool, read_global_average_pool, read_global_max_pool, read_dropout, read_spatial_dropout,
    read_drop_path, read_prelu, read_layer_scale, read_softmax, read_flatten, read_reshape, read_add,
    read_transposed_conv2d, read_upsample, read_zero_padding, read_crop, read_depth_to_space, read_channel_slice,
    read_slice, read_channel_shuffle, read_layer_norm, read_group_norm, read_instance_norm, read_global_response_norm,
    read_attention, read_class_token, read_position_embedding, read_concat, read_average, read_multiply,
    read_squeeze_excite;

}  // namespace layers

Registry<Reader<LayerPtr>>& layer_kinds() {
  using namespace layers;
  static Registry<Reader<LayerPtr>> table("layer", {
                                                       {"conv2d", read_conv2d},
                                                       {"depthwise_conv2d", read_depthwise_conv2d},
                                                       {"separable_conv2d", read_separable_conv2d},
                                                       {"dense", read_dense},
                                                       {"batch_norm", read_batch_norm},
                                                       {"max_pool", read_max_pool},                        // pool.cpp
                                                       {"average_pool", read_average_pool},                // pool.cpp
                                                       {"global_average_pool", read_global_average_pool},  // pool.cpp
                                                       {"global_max_pool", read_global_max_pool},          // pool.cpp
                                                       {"dropout", read_dropout},
                                                       {"spatial_dropout", read_spatial_dropout},  // dropout.cpp
                                                       {"drop_path", read_drop_path},              // dropout.cpp
                                                       {"prelu", read_prelu},                      // channel_scale.cpp
                                                       {"layer_scale", read_layer_scale},          // channel_scale.cpp
                                                       {"softmax", read_softmax},
                                                       {"flatten", read_flatten},  // view.cpp
                                                       {"reshape", read_reshape},  // view.cpp
                                                       {"add", read_add},          // join.cpp
                                                       {"relu", activation_reader(Activation::relu)},
                                                       {"relu6", activation_reader(Activation::relu6)},
                                                       {"leaky_relu", activation_reader(Activation::leaky_relu)},
                                                       {"gelu", activation_reader(Activation::gelu)},
                                                       {"silu", activation_reader(Activation::silu)},
                                                       {"sigmoid", activation_reader(Activation::sigmoid)},
                                                       {"tanh", activation_reader(Activation::tanh)},
                                                       {"elu", activation_reader(Activation::elu)},
                                                       {"selu", activation_reader(Activation::selu)},
                                                       {"mish", activation_reader(Activation::mish)},
                                                       {"hard_swish", activation_reader(Activation::hard_swish)},
                                                       {"hard_sigmoid", activation_reader(Activation::hard_sigmoid)},
                                                       {"softplus", activation_reader(Activation::softplus)},
                                                       {"transposed_conv2d", read_transposed_conv2d},
                                                       {"upsample", read_upsample},
                                                       {"zero_padding", read_zero_padding},  // padding.cpp
                                                       {"crop", read_crop},                  // padding.cpp
                                                       {"depth_to_space", read_depth_to_space},
                                                       {"channel_slice", read_channel_slice},  // channels.cpp
                                                       {"slice", read_slice},
                                                       {"channel_shuffle", read_channel_shuffle},  // channels.cpp
                                                       {"layer_norm", read_layer_norm},            // group_norm.cpp
                                                       {"group_norm", read_group_norm},
                                                       {"instance_norm", read_instance_norm},  // group_norm.cpp
                                                       {"global_response_norm", read_global_response_norm},
                                                       {"attention", read_attention},
                                                       {"class_token", read_class_token},                // tokens.cpp
                                                       {"position_embedding", read_position_embedding},  // tokens.cpp
                                                       {"concat", read_concat},                          // join.cpp
                                                       {"average", read_average},                        // join.cpp
                                                       {"multiply", read_multiply},                      // join.cpp
                                                       {"squeeze_excite", read_squeeze_excite},
                                                   });
  return table;
}

}  // namespace bantam
