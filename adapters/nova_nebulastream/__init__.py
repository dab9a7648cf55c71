"""Places and replaces joins in NebulaStream by Nova's plans.

Its two generations share little but the name. The current one (``nes-cli``) takes the whole
topology with each query (`nova_nebulastream.current`); 0.x, the paper's, has a coordinator with a
topology of its own, changed by REST (`nova_nebulastream.legacy`, `nova_nebulastream.client`).
"""
