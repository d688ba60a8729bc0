// Kinds of image files: which of them are read, by which suffixes they are found, and what a file's first bytes say.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace bantam {

enum class ImageFileType : std::uint8_t { jpeg, png, webp, gif, bmp, tiff, pnm };

/// "JPEG", "WebP", …
std::string_view to_string(ImageFileType type);

/// Whether this program was built with the type's library.
bool is_read(ImageFileType type);

/// "JPEG, PNG, WebP, GIF, BMP, TIFF and PNM": the types that this program reads.
std::string read_image_types();

/// Whether a name ends in a suffix of a type that is read, in letters of either case.
bool has_image_suffix(std::string_view name);

/// The suffix, in lower case, of a name that is an image's by its suffix, and of no type that is read: ".heic"; empty:
/// it is read, or no image.
std::string_view unsupported_image_suffix(std::string_view name);

/// The type of a file by its content, whatever its name. Throws DataError that says what the file is instead, and what
/// to do, where it is none of these, or one that this program is built without; the caller adds the file's name.
ImageFileType image_type_of(std::span<const std::byte> file);

}  // namespace bantam
