"""A service: loads a signed release, serves with what it certifies, and accounts for it.

It imports ``flashrt_runtime`` and the model's own library; nothing here can measure anything.

    python examples/serve.py --release build/release --trust build/release-key.pub \
        --model .flashrt/hosts/smollm2-… --prompt "The capital of France is"
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import flashrt_runtime


def main() -> int:
    """Serve one prompt and write the ledger; exit 3 where the host ran, 2 without a release."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--release", required=True, help="folder that publish-receipts wrote")
    parser.add_argument("--trust", required=True, help="public key file (PEM)")
    parser.add_argument("--model", required=True, help="folder with config and safetensors")
    parser.add_argument("--prompt", default="Explain in one sentence what a ledger is.")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--scheme", default=None, help="a scheme of the release, or the best")
    parser.add_argument("--ledger", default=".flashrt/ledger.jsonl")
    args = parser.parse_args()

    model = AutoModelForCausalLM.from_pretrained(
        args.model, dtype=torch.float32, use_safetensors=True, trust_remote_code=False
    ).eval()
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    try:
        release = flashrt_runtime.load(args.release, trust=[Path(args.trust).read_bytes()])
    except (flashrt_runtime.Refusal, OSError) as refusal:
        print(refusal, file=sys.stderr)
        return 2
    active = release.activate(model, policy="host", scheme=args.scheme)

    chat = [{"role": "user", "content": args.prompt}]
    text = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    ids = tokenizer(text, return_tensors="pt", add_special_tokens=False).input_ids
    answer = active.generate(ids, max_new_tokens=args.tokens)
    print(tokenizer.decode(answer[0, ids.shape[1] :], skip_special_tokens=True))

    active.export(args.ledger)
    for because in active.run.reasons:
        print(because, file=sys.stderr)
    active.detach()
    return 0 if active.route is not None else 3


if __name__ == "__main__":
    sys.exit(main())
