import jax

# A (B,) minus a (B, 1) fails instead of silently becoming a (B, B) loss.
jax.config.update("jax_numpy_rank_promotion", "raise")
