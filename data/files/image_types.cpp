// Two tables: of types that are read, and of first bytes of files that are something else.
#include "bantam/data/files/image_types.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/text.h"

namespace bantam {
namespace {

constexpr bool kHasWebp =
#ifdef BANTAM_WITH_WEBP
    true;
#else
    false;
#endif
constexpr bool kHasGif =
#ifdef BANTAM_WITH_GIF
    true;
#else
    false;
#endif
constexpr bool kHasTiff =
#ifdef BANTAM_WITH_TIFF
    true;
#else
    false;
#endif

struct Type {
  ImageFileType type;
  std::string_view name;
  bool is_read;
  std::array<std::string_view, 7> suffixes;
};

constexpr std::array kTypes{
    Type{ImageFileType::jpeg, "JPEG", true, {".jpg", ".jpeg", ".jpe", ".jfif", ".jif", ".pjpeg", ".mpo"}},
    Type{ImageFileType::png, "PNG", true, {".png", ".apng"}},
    Type{ImageFileType::webp, "WebP", kHasWebp, {".webp"}},
    Type{ImageFileType::gif, "GIF", kHasGif, {".gif"}},
    Type{ImageFileType::bmp, "BMP", true, {".bmp", ".dib"}},
    Type{ImageFileType::tiff, "TIFF", kHasTiff, {".tif", ".tiff"}},
    Type{ImageFileType::pnm, "PNM", true, {".ppm", ".pgm", ".pbm", ".pnm"}},
};

/// Suffixes of images of other types: of phones, web pages, cameras' raw files, medicine, astronomy and drawings.
constexpr std::array<std::string_view, 58> kUnread = {
    ".heic", ".heif", ".hif", ".avif",  ".jxl", ".jp2", ".j2k",  ".jpf", ".jpx",  ".jpc", ".jxr", ".wdp",
    ".svg",  ".svgz", ".psd", ".psb",   ".ico", ".cur", ".icns", ".dng", ".cr2",  ".cr3", ".crw", ".nef",
    ".nrw",  ".arw",  ".srf", ".sr2",   ".raf", ".orf", ".rw2",  ".rwl", ".pef",  ".x3f", ".3fr", ".erf",
    ".kdc",  ".mrw",  ".iiq", ".raw",   ".tga", ".pcx", ".xcf",  ".dds", ".exr",  ".hdr", ".eps", ".fits",
    ".fit",  ".fts",  ".dcm", ".dicom", ".qoi", ".pfm", ".xbm",  ".xpm", ".flif", ".bpg"};

std::string_view suffix_of(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : name.substr(dot);
}

bool is_suffix(std::string_view text, std::string_view lower) {
  return std::ranges::equal(
      text, lower, [](char a, char b) { return (a >= 'A' && a <= 'Z' ? static_cast<char>(a + ('a' - 'A')) : a) == b; });
}

const Type* type_of_suffix(std::string_view suffix) {
  for (const Type& type : kTypes)
    for (const std::string_view known : type.suffixes)
      if (!known.empty() && is_suffix(suffix, known)) return &type;
  return nullptr;
}

const Type& entry_of(ImageFileType type) { return *std::ranges::find(kTypes, type, &Type::type); }

bool has_at(std::string_view text, std::size_t at, std::string_view part) {
  return text.size() >= at + part.size() && text.substr(at, part.size()) == part;
}

/// Whether text begins, after white space, with `word` in letters of either case.
bool begins_with_word(std::string_view text, std::string_view word) {
  const std::size_t first = text.find_first_not_of(" \t\r\n\xEF\xBB\xBF");
  return first != std::string_view::npos && text.size() >= first + word.size() &&
         is_suffix(text.substr(first, word.size()), word);
}

std::optional<ImageFileType> sniffed(std::string_view text) {
  using namespace std::string_view_literals;
  if (has_at(text, 0, "\xFF\xD8\xFF")) return ImageFileType::jpeg;
  if (has_at(text, 0, "\x89PNG")) return ImageFileType::png;
  if (has_at(text, 0, "RIFF") && has_at(text, 8, "WEBP")) return ImageFileType::webp;
  if (has_at(text, 0, "GIF87a") || has_at(text, 0, "GIF89a")) return ImageFileType::gif;
  const bool is_cr2 = has_at(text, 8, "CR");
  for (const std::string_view start : {"II*\0"sv, "MM\0*"sv, "II+\0"sv, "MM\0+"sv})
    if (has_at(text, 0, start) && !is_cr2) return ImageFileType::tiff;
  // The header after these, whose size is one of a few.
  if (has_at(text, 0, "BM") && text.size() >= 18 && text[15] == 0 && text[16] == 0 && text[17] == 0)
    return ImageFileType::bmp;
  if (text.size() > 2 && text[0] == 'P' && text[1] >= '1' && text[1] <= '6' &&
      std::string_view(" \t\r\n#").find(text[2]) != std::string_view::npos)
    return ImageFileType::pnm;
  return std::nullopt;
}

/// Names the type of a file that no decoder reads, by its first bytes; empty: not known.
std::string_view other_kind(std::string_view text) {
  using namespace std::string_view_literals;
  struct Start {
    std::string_view bytes, kind;
    std::size_t at = 0;
  };
  static constexpr std::array kStarts{
      Start{"ftypavif"sv, "an AVIF image", 4},
      Start{"ftypavis"sv, "an AVIF image", 4},
      Start{"ftyphe"sv, "a HEIC image", 4},
      Start{"ftypmif1"sv, "a HEIC image", 4},
      Start{"ftypmsf1"sv, "a HEIC image", 4},
      Start{"ftypcrx"sv, "a camera's raw image (CR3)", 4},
      Start{"ftyp"sv, "a video", 4},
      Start{"\xFF\x0A"sv, "a JPEG XL image"},
      Start{"\0\0\0\x0CJXL "sv, "a JPEG XL image"},
      Start{"\0\0\0\x0CjP  "sv, "a JPEG 2000 image"},
      Start{"\xFF\x4F\xFF\x51"sv, "a JPEG 2000 image"},
      Start{"II\xBC"sv, "a JPEG XR image"},
      Start{"CR"sv, "a camera's raw image (CR2)", 8},
      Start{"FUJIFILMCCD-RAW"sv, "a camera's raw image (RAF)"},
      Start{"IIRO"sv, "a camera's raw image (ORF)"},
      Start{"IIU\0"sv, "a camera's raw image (RW2)"},
      Start{"FOVb"sv, "a camera's raw image (X3F)"},
      Start{"8BPS"sv, "a Photoshop document"},
      Start{"\0\0\1\0"sv, "an icon (ICO)"},
      Start{"\0\0\2\0"sv, "a cursor (CUR)"},
      Start{"DICM"sv, "a DICOM image", 128},
      Start{"SIMPLE  ="sv, "a FITS image"},
      Start{"\x76\x2F\x31\x01"sv, "an OpenEXR image"},
      Start{"#?RADIANCE"sv, "a Radiance HDR image"},
      Start{"DDS "sv, "a DDS texture"},
      Start{"qoif"sv, "a QOI image"},
      Start{"gimp xcf"sv, "a GIMP document"},
      Start{"Pf"sv, "a PFM image"},
      Start{"PF"sv, "a PFM image"},
      Start{"%PDF"sv, "a PDF document"},
      Start{"%!PS"sv, "a PostScript document"},
      Start{"PK\3\4"sv, "a ZIP archive"},
      Start{"\x1F\x8B"sv, "a gzip archive"},
      Start{"\x93NUMPY"sv, "a NumPy array"},
      Start{"version https://git-lfs"sv, "a pointer of Git LFS (`git lfs pull` fetches the image)"},
  };
  for (const Start& start : kStarts)
    if (has_at(text, start.at, start.bytes)) return start.kind;
  const std::string_view head = text.substr(0, 1024);
  if (begins_with_word(head, "<!doctype html") || begins_with_word(head, "<html"))
    return "a web page (HTML), as a failed download leaves it";
  if (begins_with_word(head, "<svg") ||
      (begins_with_word(head, "<?xml") && head.find("<svg") != std::string_view::npos))
    return "an SVG drawing";
  return {};
}

}  // namespace

std::string_view to_string(ImageFileType type) { return entry_of(type).name; }

bool is_read(ImageFileType type) { return entry_of(type).is_read; }

std::string read_image_types() {
  std::vector<std::string> names;
  for (const Type& type : kTypes)
    if (type.is_read) names.emplace_back(type.name);
  return join(names, ", ", " and ");
}

bool has_image_suffix(std::string_view name) {
  const Type* type = type_of_suffix(suffix_of(name));
  return type != nullptr && type->is_read;
}

std::string_view unsupported_image_suffix(std::string_view name) {
  const std::string_view suffix = suffix_of(name);
  if (const Type* type = type_of_suffix(suffix); type != nullptr)
    return type->is_read ? std::string_view() : type->suffixes[0];
  const auto found = std::ranges::find_if(kUnread, [&](std::string_view one) { return is_suffix(suffix, one); });
  return found == kUnread.end() ? std::string_view() : *found;
}

ImageFileType image_type_of(std::span<const std::byte> file) {
  if (file.empty()) throw DataError("an empty file, expected an image");
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (const std::optional<ImageFileType> type = sniffed(text)) {
    if (is_read(*type)) return *type;
    throw DataError(
        fmt::format("is a {0} file, and this program is built without {0}: build it where its library is "
                    "installed (scripts/install_deps.sh does), or convert the file to PNG",
                    to_string(*type)));
  }
  if (const std::string_view kind = other_kind(text); !kind.empty())
    throw DataError(
        fmt::format("is {}, which is not read: convert it to JPEG or PNG, remove it, or leave it out by "
                    "data.on_error: skip",
                    kind));
  std::string first;
  for (const std::byte value : file.first(std::min<std::size_t>(file.size(), 4)))
    first += fmt::format(" {:02x}", std::to_integer<int>(value));
  throw DataError(fmt::format("is no {} file: it starts with{}", read_image_types(), first));
}

}  // namespace bantam
