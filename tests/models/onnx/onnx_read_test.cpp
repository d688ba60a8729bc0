// ONNX files read: what serialize writes, other spellings of the same, damaged files by message, and by the thousand.
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "bantam/base/error.h"
#include "bantam/base/protobuf.h"
#include "bantam/models/onnx/onnx_import.h"
#include "bantam/models/onnx/onnx_model.h"
#include "tests/models/onnx/small_models.h"

namespace bantam::onnx::onnx_read_test {
namespace {

using namespace std::string_literals;

std::string error_of(const std::string& bytes) {
  try {
    (void)parse(bytes, "net.onnx");
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}

std::string in_file(const std::string& what) { return "net.onnx: not an ONNX model that can be read: " + what; }

/// A model message of these fields of its graph.
std::string with_graph(const ProtoWriter& graph) {
  ProtoWriter opset, model;
  opset.integer(2, 17);
  model.integer(1, 8);
  model.message(8, opset);
  model.message(7, graph);
  return model.text();
}

std::string with_initializer(const ProtoWriter& tensor) {
  ProtoWriter graph;
  graph.message(5, tensor);
  return with_graph(graph);
}

TEST(ReadOnnx, ReadsWhatIsWritten) {
  Model model = testing::small_network();
  model.producer = "p";
  model.producer_version = "1.2";
  model.graph_name = "g";
  model.metadata = {{"class_names", "[\"a\"]"}};
  model.nodes[0].attributes = {{"f", 1.5f},
                               {"i", std::int64_t{-3}},
                               {"s", "text"s},
                               {"t", Tensor{"t", Type::int8, {2}, "\x01\x02"}},
                               {"fs", std::vector<float>{1, 2}},
                               {"is", std::vector<std::int64_t>{1, -2}},
                               {"none", std::vector<std::int64_t>{}},
                               {"ss", std::vector<std::string>{"a", "b"}}};
  const Model read = parse(serialize(model), "net.onnx");
  EXPECT_EQ(read.opset, model.opset);
  EXPECT_EQ(read.producer, "p");
  EXPECT_EQ(read.producer_version, "1.2");
  EXPECT_EQ(read.graph_name, "g");
  EXPECT_EQ(read.metadata, model.metadata);
  ASSERT_EQ(read.nodes.size(), model.nodes.size());
  EXPECT_EQ(read.nodes[0].attributes.size(), 8u);
  EXPECT_EQ(read.inputs[0].dims, model.inputs[0].dims);
  EXPECT_EQ(read.inputs[0].names, model.inputs[0].names);
  EXPECT_EQ(read.initializers[0].data, model.initializers[0].data);
  EXPECT_EQ(serialize(read), serialize(model));
}

TEST(ReadOnnx, ReadsValuesInTheFieldsOfTheirTypes) {
  const auto tensor_of = [](Type type, const testing::Integers& dims, const auto& write) {
    ProtoWriter tensor;
    for (const std::int64_t extent : dims) tensor.integer(1, extent);  // not packed
    tensor.integer(2, static_cast<std::int64_t>(type));
    write(tensor);
    tensor.bytes(8, "t");
    return parse(with_initializer(tensor), "net.onnx").initializers.at(0);
  };
  using Floats = std::vector<float>;
  EXPECT_EQ(tensor_of(Type::float32, {2, 1},
                      [](ProtoWriter& t) {
                        t.numbers(4, std::span<const float>(Floats{1, -2}));
                      })
                .as_floats(),
            (Floats{1, -2}));
  EXPECT_EQ(tensor_of(Type::float32, {2},
                      [](ProtoWriter& t) {
                        t.number(4, 1.0f);
                        t.number(4, 3.0f);
                      })
                .as_floats(),
            (Floats{1, 3}));
  EXPECT_EQ(tensor_of(Type::float64, {1}, [](ProtoWriter& t) { t.number(10, 0.5); }).as_floats(), (Floats{0.5f}));
  EXPECT_EQ(tensor_of(Type::int64, {2},
                      [](ProtoWriter& t) {
                        t.integers(7, testing::Integers{300, -1});
                      })
                .as_integers(),
            (testing::Integers{300, -1}));
  EXPECT_EQ(tensor_of(Type::int32, {1}, [](ProtoWriter& t) { t.integer(5, -7); }).as_integers(),
            (testing::Integers{-7}));
  EXPECT_EQ(tensor_of(Type::uint8, {2},
                      [](ProtoWriter& t) {
                        t.integers(5, testing::Integers{200, 1});
                      })
                .as_integers(),
            (testing::Integers{200, 1}));
  EXPECT_EQ(tensor_of(Type::float16, {1}, [](ProtoWriter& t) { t.integer(5, 0x3E00); }).as_floats(), (Floats{1.5f}));
  EXPECT_EQ(tensor_of(Type::float32, {}, [](ProtoWriter& t) { t.bytes(9, "\x00\x00\xc0\x3f"s); }).as_floats(),
            (Floats{1.5f}));
}

TEST(ReadOnnx, NamesWhatIsDamaged) {
  EXPECT_EQ(error_of(""), in_file("it has no graph"));
  EXPECT_EQ(error_of("\x89PNG\r\n"), in_file("field 1281 has 8 bytes, and 4 are left"));
  EXPECT_EQ(error_of("\x3a\x00"s), in_file("it does not say which version of ONNX' operators it uses (opset_import)"));
  EXPECT_EQ(error_of("\x3a\x02\x0a\x05"s), in_file("graph: field 1 has 5 bytes, and 0 are left"));
  EXPECT_EQ(error_of("\x3a\x02\x0a\x00"s), in_file("graph: node 0: no op"));
  ProtoWriter sparse;
  sparse.bytes(15, "");
  EXPECT_EQ(error_of(with_graph(sparse)), in_file("graph: a sparse initializer, which is not supported"));
}

TEST(ReadOnnx, NamesTensorsThatAreDamaged) {
  const auto error = [](const auto& write) {
    ProtoWriter tensor;
    tensor.bytes(8, "w");
    write(tensor);
    return error_of(with_initializer(tensor));
  };
  const std::string place = "graph: initializer: ", named = place + "tensor 'w': ";
  EXPECT_EQ(error([](ProtoWriter&) {}), in_file(named + "no element type"));
  EXPECT_EQ(
      error([](ProtoWriter& t) { t.integer(2, 8); }),
      in_file(named + "element type 8 of TensorProto; known are float32, float16, bfloat16, float64, int8, uint8, "
                      "int32, int64 and bool"));
  EXPECT_EQ(error([](ProtoWriter& t) {
              t.integer(2, 1);
              t.integer(1, 3);
              t.bytes(9, "12345678");
            }),
            in_file(named + "8 bytes of values; its extents and float32 need 12"));
  EXPECT_EQ(error([](ProtoWriter& t) {
              t.integer(2, 1);
              t.integer(1, -3);
            }),
            in_file(named + "an extent is -3"));
  EXPECT_EQ(error([](ProtoWriter& t) {
              t.integer(2, 1);
              t.integers(1, testing::Integers{std::int64_t{1} << 40, std::int64_t{1} << 40});
            }),
            in_file(named + "its extents are too large for a file of 2 GiB"));
  EXPECT_EQ(error([](ProtoWriter& t) {
              t.integer(2, 1);
              t.integer(14, 1);
            }),
            in_file(named + "external data: its location is not the name of a file"));
}

/// Nodes, names and attributes of a few bytes take a hundred in memory; numbers of a byte eight.
TEST(ReadOnnx, PartsOfAFewBytesAreCounted) {
  constexpr int kMany = 1 << 20;
  const auto repeated = [](int count, const auto& write) {
    ProtoWriter message;
    for (int i = 0; i < count; ++i) write(message);
    return message;
  };
  const auto graph_of_node = [](const ProtoWriter& fields) {
    ProtoWriter graph;
    graph.message(1, fields);
    return with_graph(graph);
  };
  ProtoWriter node, attribute;
  node.bytes(4, "R");
  const std::vector<std::int64_t> ones(kMany + 1, 1);
  attribute.integers(8, ones);
  const std::string limit = "more than 1,048,576 nodes, names, attributes and numbers of them";
  const auto nodes = repeated(kMany / 4 + 1, [&](ProtoWriter& m) { m.message(1, node); });
  const auto names = repeated(kMany, [](ProtoWriter& m) { m.bytes(1, ""); });
  ProtoWriter with_attribute = node;
  with_attribute.message(5, attribute);
  for (const std::string& file : {with_graph(nodes), graph_of_node(names), graph_of_node(with_attribute)})
    EXPECT_NE(error_of(file).find(limit), std::string::npos) << error_of(file);
  ProtoWriter tensor;
  for (int i = 0; i < 65; ++i) tensor.integer(1, 1);
  EXPECT_EQ(error_of(with_initializer(tensor)), in_file("graph: initializer: more than 64 axes"));
  // Numbers of a tensor are read as far as it has room for them.
  ProtoWriter wide;
  wide.integer(1, 2);
  wide.integer(2, static_cast<std::int64_t>(Type::int64));
  wide.bytes(8, "w");
  wide.integers(7, ones);
  EXPECT_EQ(error_of(with_initializer(wide)),
            in_file("graph: initializer: tensor 'w': more values than its extents and int64 need"));
}

TEST(ReadOnnx, NamesNodesWhoseAttributesAreDamaged) {
  ProtoWriter tensor, attribute, node, graph;
  tensor.integer(2, 8);
  attribute.bytes(1, "value");
  attribute.message(5, tensor);
  node.message(5, attribute);
  node.bytes(2, "labels");
  node.bytes(4, "Constant");
  graph.message(1, node);
  EXPECT_TRUE(error_of(with_graph(graph))
                  .starts_with(in_file("graph: node 0: 'labels' (Constant): tensor '': element type 8 ")))
      << error_of(with_graph(graph));
}

TEST(ReadOnnx, ExtentsOfZeroAreOpen) {
  Model model = testing::small_network();
  model.inputs[0].dims = {0, 3, 0, 0};
  EXPECT_EQ(parse(serialize(model), "net.onnx").inputs[0].dims, (std::vector<std::int64_t>{-1, 3, -1, -1}));
}

TEST(ReadOnnx, AFileThatIsMissingIsNamed) {
  try {
    (void)read("/nowhere/net.onnx");
    FAIL();
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("/nowhere/net.onnx"), std::string::npos) << error.what();
  }
}

/// Bytes are changed at random places, and in one file of four removed, repeated and inserted, too.
std::string damaged(const std::string& bytes, std::mt19937& random) {
  std::string result = bytes;
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  const std::size_t kinds = below(4) == 0 ? 5 : 2;
  for (std::size_t times = 1 + below(3); times-- > 0;) {
    const std::size_t at = below(result.size());
    switch (below(kinds)) {
      case 0:
        result[at] = static_cast<char>(random());
        break;
      case 1:
        result[at] = static_cast<char>(result[at] ^ (1 << below(8)));
        break;
      case 2:
        result.erase(at, 1 + below(16));
        break;
      case 3:
        result.insert(at, result.substr(below(result.size()), 1 + below(32)));
        break;
      default:
        result.insert(at, std::string(1 + below(4), static_cast<char>(random())));
    }
    if (result.empty()) return "?";
  }
  return result;
}

// 2,000 files: each is an error of ours, which says where, or a network.
TEST(ReadOnnx, DamagedFilesAreErrorsOrNetworks) {
  const std::string bytes = serialize(testing::small_network());
  std::mt19937 random(19);
  int networks = 0, unreadable = 0, refused = 0;
  for (int i = 0; i < 2000; ++i) {
    const std::string file = damaged(bytes, random);
    Model model;
    try {
      model = parse(file, "net.onnx");
    } catch (const DataError& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with("net.onnx: ")) << error.what();
      ++unreadable;
      continue;
    }
    try {
      const ImportedNetwork network = import_model(model);
      EXPECT_FALSE(network.yaml.empty());
      ++networks;
    } catch (const DataError& error) {
      EXPECT_FALSE(std::string(error.what()).empty());
      ++refused;
    }
  }
  std::printf("%d networks, %d refused, %d unreadable\n", networks, refused, unreadable);
  EXPECT_GT(networks, 100);
  EXPECT_GT(unreadable, 100);
  EXPECT_GT(refused, 100);
}

// Structure that stays readable: names, ops, extents and attributes of a sound file are exchanged for others of it.
TEST(ReadOnnx, ExchangedNamesAndNumbersAreErrorsOrNetworks) {
  const Model sound = testing::small_network();
  std::mt19937 random(7);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  constexpr std::int64_t kNumbers[] = {-1, 0, 1, 2, 3, 7, std::int64_t{1} << 31, std::int64_t{1} << 62, INT64_MIN};
  const std::vector<std::string> ops = supported_ops();
  int networks = 0;
  for (int i = 0; i < 2000; ++i) {
    Model model = sound;
    for (std::size_t times = 1 + below(3); times-- > 0;) {
      Node& node = model.nodes[below(model.nodes.size())];
      const Node& other = model.nodes[below(model.nodes.size())];
      Tensor& tensor = model.initializers[below(model.initializers.size())];
      switch (below(6)) {
        case 0:
          node.op = ops[below(ops.size())];
          break;
        case 1:
          node.inputs[below(node.inputs.size())] = other.outputs[0];
          break;
        case 2:
          node.inputs.push_back(other.inputs.back());
          break;
        case 3:
          node.attributes = other.attributes;
          break;
        case 4:
          if (tensor.dims.size() > 1) std::swap(tensor.dims[0], tensor.dims[1]);
          break;
        default:
          for (auto& [name, value] : node.attributes)
            if (auto* list = std::get_if<testing::Integers>(&value))
              for (std::int64_t& number : *list) number = kNumbers[below(std::size(kNumbers))];
      }
    }
    try {
      (void)import_model(model);
      ++networks;
    } catch (const DataError& error) {
      EXPECT_FALSE(std::string(error.what()).empty());
    }
  }
  EXPECT_GT(networks, 20);
}

}  // namespace
}  // namespace bantam::onnx::onnx_read_test
