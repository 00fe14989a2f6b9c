"""SYNTHETIC example: fine-tune a language model with the trainer of Hugging Face."""

import argparse

from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="meta-llama/Llama-2-7b-hf")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--lr", type=float, default=2e-5)
    args = parser.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model)
    data = load_dataset("wikitext", "wikitext-103-v1", split="train").map(
        lambda rows: tokenizer(rows["text"], truncation=True, max_length=2048), batched=True
    )
    options = TrainingArguments(
        output_dir="out",
        num_train_epochs=args.epochs,
        per_device_train_batch_size=args.batch_size,
        gradient_accumulation_steps=8,
        learning_rate=args.lr,
        bf16=True,
    )
    Trainer(model=model, args=options, train_dataset=data).train()


if __name__ == "__main__":
    main()
