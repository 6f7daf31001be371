"""Stands in for rules_proto, which Bazel's own tools load: the native rules under its names."""

proto_lang_toolchain = native.proto_lang_toolchain
proto_library = native.proto_library
