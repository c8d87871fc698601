"""The table of all networks."""

from __future__ import annotations

import importlib
from typing import NamedTuple

from jax_networks._network import Network, Size, as_users


class Row(NamedTuple):
    """Facts about a network."""

    module: str
    package: str | None
    """Needed beside JAX."""
    small: int
    """Parameters of the small network; statistics of batch norms count."""
    full: int
    primitives: str
    """Of both sizes, with calls inlined."""


def build(name: str, size: Size = "small") -> Network:
    """The network of this name; imports its framework."""
    with as_users():
        return getattr(importlib.import_module(f"jax_networks.{ROWS[name].module}"), name)(size)


ROWS = {
    "flax_cnn": Row(
        "nnx_networks", "flax", 8_042, 106_346,
        "add broadcast_in_dim conv_general_dilated div dot_general exp log max mul reduce_max "
        "reduce_sum reduce_window_max reduce_window_sum reshape rsqrt stop_gradient sub",
    ),
    "resnet50": Row(
        "nnx_networks", "flax", 14_594, 25_610_152,
        "add conv_general_dilated div dot_general max mul reduce_sum reduce_window_max reshape "
        "rsqrt sub",
    ),
    "efficientnet_b0": Row(
        "nnx_networks", "flax", 8_825, 5_330_564,
        "add broadcast_in_dim conv_general_dilated div dot_general exp logistic max mul "
        "reduce_max reduce_sum reshape rsqrt stop_gradient sub",
    ),
    "vit": Row(
        "nnx_networks", "flax", 32_554, 86_567_656,
        "add broadcast_in_dim concatenate conv_general_dilated copy div dot_general erfc exp "
        "max mul neg reduce_max reduce_sum reshape rsqrt slice square squeeze stop_gradient sub "
        "transpose",
    ),
    "flax_vit": Row(
        "linen_networks", "flax", 32_490, 5_717_032,
        "add broadcast_in_dim conv_general_dilated convert_element_type div dot_general exp "
        "integer_pow max mul reduce_max reduce_sum reshape rsqrt sqrt square stop_gradient sub "
        "tanh transpose",
    ),
    "flax_vit_bfloat16": Row(
        "linen_networks", "flax", 32_490, 5_717_032,
        "add broadcast_in_dim conv_general_dilated convert_element_type div dot_general exp "
        "integer_pow max mul reduce_max reduce_sum reshape rsqrt sqrt square stop_gradient sub "
        "tanh transpose",
    ),
    "flax_language_model": Row(
        "linen_networks", "flax", 28_960, 123_751_680,
        "add broadcast_in_dim convert_element_type div dot_general exp gather ge integer_pow "
        "iota lt max mul ne reduce_max reduce_sum reshape rsqrt select_n sqrt square "
        "stop_gradient sub tanh transpose",
    ),
    "flax_recurrent": Row(
        "linen_networks", "flax", 3_413, 762_659,
        "add broadcast_in_dim concatenate dot_general logistic mul random_seed random_split "
        "reshape scan slice split squeeze sub tanh transpose",
    ),
    "swin": Row(
        "linen_networks", "flax", 35_942, 28_288_354,
        "add broadcast_in_dim concatenate conv_general_dilated convert_element_type copy div "
        "dot_general erfc exp gather max mul neg reduce_max reduce_sum reshape rsqrt select_n "
        "slice square squeeze stop_gradient sub transpose",
    ),
    "mobilenet_v2": Row(
        "linen_convolutions", "flax", 6_114, 3_538_984,
        "add broadcast_in_dim conv_general_dilated div dot_general max min mul reduce_sum "
        "reshape rsqrt sub",
    ),
    "unet": Row(
        "linen_convolutions", "flax", 24_050, 31_048_322,
        "add broadcast_in_dim concatenate conv_general_dilated max mul reduce_window_max "
        "reshape rsqrt sub",
    ),
    "wavenet": Row(
        "linen_convolutions", "flax", 2_196, 1_251_136,
        "add broadcast_in_dim conv_general_dilated convert_element_type exp log logistic max "
        "mul pad reduce_max reduce_sum reshape split stop_gradient sub tanh",
    ),
    "segmentation": Row(
        "linen_convolutions", "flax", 8_917, 12_899_221,
        "abs add and argmax broadcast_in_dim concatenate conv_general_dilated "
        "convert_element_type div dot_general floor gather ge gt iota le logistic lt max mul ne "
        "reduce_sum reshape rsqrt select_n square sub transpose",
    ),
    "keras_cnn": Row(
        "keras_networks", "keras", 2_954, 159_754,
        "add broadcast_in_dim conv_general_dilated convert_element_type div dot_general exp "
        "expm1 ge gt max mul neg reduce_max reduce_sum reduce_window_max reduce_window_sum "
        "reshape rsqrt select_n stop_gradient sub",
    ),
    "keras_attention_lstm": Row(
        "keras_networks", "keras", 5_653, 1_333_509,
        "add and broadcast_in_dim concatenate convert_element_type copy div dot_general erfc "
        "exp ge gt iota logistic max mul neg reduce_max reduce_sum reshape rev rsqrt scan "
        "select_n slice split square squeeze stop_gradient sub tanh transpose",
    ),
    "mobilenet_v3": Row(
        "keras_networks", "keras", 7_194, 5_507_432,
        "add broadcast_in_dim conv_general_dilated div dot_general max min mul neg reduce_sum "
        "reshape rsqrt",
    ),
    "video": Row(
        "keras_networks", "keras", 1_326, 27_869_392,
        "add broadcast_in_dim conv_general_dilated div dot_general max min mul neg reduce_sum "
        "reduce_window_max reshape rsqrt",
    ),
    "equinox_attention": Row(
        "equinox_networks", "equinox", 3_216, 3_150_336,
        "add broadcast_in_dim convert_element_type div dot_general exp ge gt integer_pow iota "
        "max mul reduce_max reduce_sum reshape rsqrt select_n square stop_gradient sub tanh "
        "transpose",
    ),
    "equinox_gru": Row(
        "equinox_networks", "equinox", 699, 237_347,
        "add broadcast_in_dim dot_general logistic mul scan split sub tanh transpose",
    ),
    "convnext": Row(
        "equinox_networks", "equinox", 8_082, 28_589_128,
        "add broadcast_in_dim conv_general_dilated convert_element_type copy div dot_general "
        "erfc gt max mul neg reduce_sum reshape rsqrt select_n square squeeze sub transpose",
    ),
    "mixer": Row(
        "equinox_networks", "equinox", 6_122, 18_528_264,
        "add broadcast_in_dim conv_general_dilated convert_element_type div dot_general gt "
        "integer_pow max mul reduce_sum reshape rsqrt select_n square squeeze sub tanh "
        "transpose",
    ),
    "resnet18": Row(
        "equinox_networks", "equinox", 6_370, 11_699_112,
        "add broadcast_in_dim conv_general_dilated convert_element_type div dot_general eq "
        "integer_pow max mul reduce_sum reduce_window_max reshape select_n sqrt squeeze sub "
        "transpose",
    ),
    "autoencoder": Row(
        "equinox_networks", "equinox", 5_987, 9_483_555,
        "abs add broadcast_in_dim conv_general_dilated convert_element_type dot_general exp "
        "expm1 ge gt log1p logistic max mul ne neg reshape select_n squeeze sub transpose",
    ),
    "decode_step": Row(
        "plain_decoders", None, 1_984, 17_695_744,
        "add argmax broadcast_in_dim convert_element_type div dot_general dynamic_slice "
        "dynamic_update_slice exp gt iota le lt max mul reduce_max reduce_sum reshape rsqrt "
        "select_n split square squeeze stop_gradient sub transpose",
    ),
    "gpt_decode": Row(
        "plain_decoders", None, 7_056, 124_668_672,
        "add argmax broadcast_in_dim concatenate convert_element_type cos div dot_general "
        "dynamic_update_slice exp gather iota le log logistic lt max mul neg pow reduce_max "
        "reduce_sum reshape rsqrt select_n sin slice sqrt square squeeze stop_gradient sub "
        "top_k",
    ),
    "gru_scan": Row(
        "plain_sequences", None, 696, 229_120,
        "add broadcast_in_dim dot_general logistic mul scan split sub tanh transpose",
    ),
    "lstm_scan": Row(
        "plain_sequences", None, 1_824, 610_304,
        "add broadcast_in_dim concatenate div dot_general logistic mul reduce_sum scan split "
        "tanh transpose",
    ),
    "linear_recurrence": Row(
        "plain_sequences", None, 204, 43_264,
        "abs add broadcast_in_dim concatenate convert_element_type cumsum div dot_general exp "
        "expm1 gt log1p max mul ne neg pad select_n slice split sub",
    ),
    "mixture_of_experts": Row(
        "plain_sequences", None, 1_056, 37_754_880,
        "add broadcast_in_dim convert_element_type cumsum div dot_general eq exp iota max mul "
        "reduce_max reduce_sum reshape stop_gradient sub top_k transpose",
    ),
    "generate": Row(
        "plain_control_flow", None, 396, 321_792,
        "add and argmax broadcast_in_dim convert_element_type dot_general dynamic_slice lt ne "
        "scatter select_n squeeze sub tanh while",
    ),
    "early_exit": Row(
        "plain_control_flow", None, 256, 5_345_280,
        "add broadcast_in_dim cond convert_element_type div dot_general exp gt max reduce_max "
        "reduce_min reduce_sum scan stop_gradient sub",
    ),
    "detector": Row(
        "plain_vision", None, 5_493, 1_974_204,
        "add argmax broadcast_in_dim concatenate conv_general_dilated convert_element_type div "
        "exp gather logistic lt max min mul reduce_max reshape select_n slice sub top_k",
    ),
    "int8_network": Row(
        "plain_vision", None, 1_069, 233_546,
        "add and argmax broadcast_in_dim conv_general_dilated convert_element_type div "
        "dot_general max min mul ne pad reduce_sum reduce_window rem select_n shift_left "
        "shift_right_arithmetic sign sub",
    ),
}  # fmt: skip
