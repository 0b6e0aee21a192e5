"""The Token Turing Machine's equations on single matrices: no batch, no digest, no folding."""

import math

import torch


def scramble(core):
    """Random numbers in every parameter, so that a forgotten bias, scale or table shows."""
    with torch.no_grad():
        for parameter in core.parameters():
            parameter.copy_(torch.randn_like(parameter) * (0.5 if parameter.ndim < 2 else parameter.shape[-1] ** -0.5))
    return core


def gelu(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def linear(layer, x):
    return x @ layer.weight.T + layer.bias


def norm(layer, x):
    centred = x - x.mean(-1, keepdim=True)
    return centred / ((centred**2).mean(-1, keepdim=True) + 1e-6).sqrt() * layer.weight + layer.bias


def net(module, x):
    return linear(module.contract, gelu(linear(module.expand, x)))


def multi_head(module, queries, context, heads):
    width = queries.shape[-1] // heads
    q, k, v = linear(module.query, queries), linear(module.key, context), linear(module.value, context)
    parts = []
    for head in range(heads):
        cut = slice(head * width, (head + 1) * width)
        parts.append((q[:, cut] @ k[:, cut].T / math.sqrt(width)).softmax(-1) @ v[:, cut])
    return linear(module.out, torch.cat(parts, -1))


def process(unit, z, heads):
    if unit.table is not None:
        z = z + unit.table
    for block in unit.blocks:
        if unit.kind == "transformer":
            normed = norm(block.attention_norm, z)
            z = z + multi_head(block.attention, normed, normed, heads)
            z = z + net(block.feedforward, norm(block.feedforward_norm, z))
        elif unit.kind == "mixer":
            z = z + net(block.token_mixing.mix, norm(block.token_norm, z).T).T
            z = z + net(block.channel_mixing, norm(block.channel_norm, z))
        else:
            z = net(block.feedforward, norm(block.norm, z))
    return norm(unit.norm, z)


def summarize(kind, module, tokens):
    """Tokens [p, d], in the order of the paper or of the official code, to [k, d]."""
    k, p = module.num_out, len(tokens)
    if kind == "mlp":
        return net(module.net, norm(module.norm, tokens)).T.softmax(-1) @ tokens
    if kind == "latent_query":
        return (module.queries @ tokens.T / math.sqrt(tokens.shape[-1])).softmax(-1) @ tokens
    if kind == "mha":
        return multi_head(module.attention, module.queries, tokens, 8)
    groups = [[token for place, token in enumerate(tokens) if place * k // p == group] for group in range(k)]
    return torch.stack([torch.stack(group).mean(0) for group in groups])


def erase_add(module, memory, outputs, official):
    def control(part):
        return net(part.channel_mixing, net(part.token_mixing.mix, norm(part.norm, outputs).T).T)

    weights = net(module.address, norm(module.norm, memory)).T.softmax(-1)  # s m
    erase, add = control(module.erase), control(module.add)  # s d
    if not official:
        erase = torch.sigmoid(erase)
    heads = len(weights)
    added = torch.zeros_like(memory)
    for s in range(heads):
        written = torch.outer(weights[s], add[s])
        added = added + ((1 - written) / heads if official else written)
    for s in range(heads):
        memory = memory * (1 - torch.outer(weights[s], erase[s]))
    return memory + added


def ttm_step(core, memory, inputs):
    """M^t [m, d] and the raw I^t [n, d_in] to O^t and M^{t+1}."""
    config = core.config
    tokens = inputs if isinstance(core.project, torch.nn.Identity) else linear(core.project, inputs)
    seen = torch.cat((memory, tokens))
    if config.positions != "none":
        seen = seen + core.read_table
    outputs = process(core.process, summarize(config.summarizer, core.read, seen), config.num_heads)
    if config.memory == "none":
        return outputs, torch.zeros_like(memory)
    if config.memory == "concatenate":
        return outputs, torch.cat((memory, tokens))[-config.num_slots :]
    if config.memory != "token_summary":
        return outputs, erase_add(core.erase_add, memory, outputs, config.memory == "erase_add_official")
    order = (memory, tokens, outputs) if config.positions == "official" else (memory, outputs, tokens)
    offered = torch.cat(order)
    if config.positions != "none":
        offered = offered + core.write_table
    return outputs, summarize(config.summarizer, core.write, offered)


def recurrent_step(core, memory, inputs):
    """The same for the Recurrent Transformer."""
    config = core.config
    tokens = inputs if isinstance(core.project, torch.nn.Identity) else linear(core.project, inputs)
    summary = summarize(config.summarizer, core.summarize, tokens)
    out = process(core.process, torch.cat((memory, summary)), config.num_heads)
    if config.slicing == "official":
        return out[: config.num_reads], out[config.num_reads :]
    return out[config.num_slots :], out[: config.num_slots]


def unroll(step, core, inputs, memory, is_first):
    """Row by row, step by step: outputs [b, t, r, d] and the final memory [b, m, d]."""
    rows, memories = [], []
    for row in range(inputs.shape[0]):
        state, outputs = memory[row], []
        for t in range(inputs.shape[1]):
            if is_first[row, t]:
                state = torch.zeros_like(state) if core.start is None else core.start
            output, state = step(core, state, inputs[row, t])
            outputs.append(output)
        rows.append(torch.stack(outputs))
        memories.append(state)
    return torch.stack(rows), torch.stack(memories)


def differences(got, want, leaves):
    """Largest difference of each value, and of the gradients of one random scalar with respect to each leaf.

    Values relative to their largest entry; gradients relative to the largest of all, because some are zero but for
    rounding (a bias before a softmax).
    """
    weights = [torch.randn_like(tensor) for tensor in want]
    gradients = []
    for tensors in (got, want):
        scalar = sum((tensor * weight).sum() for tensor, weight in zip(tensors, weights, strict=True))
        gradients.append(torch.autograd.grad(scalar, list(leaves.values()), allow_unused=True, materialize_grads=True))
    result = {}
    for number, (a, b) in enumerate(zip(got, want, strict=True)):
        result[f"value {number}"] = (a - b).abs().max().item() / max(1.0, b.abs().max().item())
    largest = max(1.0, *(b.abs().max().item() for b in gradients[1]))
    for name, a, b in zip(leaves, *gradients, strict=True):
        result[f"gradient {name}"] = (a - b).abs().max().item() / largest
    return result
