"""A small training program: reading it once loads what reading any other one needs."""

import argparse
import json
import os
from pathlib import Path

import torch
import torch.nn as nn
import torchvision
import yaml
from torch.utils.data import DataLoader
from torchvision import datasets, transforms
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments


class Net(nn.Module):
    def __init__(self, width=64, classes=10):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, width, 3), nn.ReLU(), nn.Flatten())
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.body(x))


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", default="config.yaml")
    parser.add_argument("--epochs", type=int, default=None)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--arch", default="resnet18", choices=["net", "resnet18", "gpt2"])
    return parser.parse_args()


def main():
    args = parse_args()
    config = yaml.safe_load(open(args.config))
    epochs = args.epochs or config["trainer"]["max_epochs"]
    root = Path(os.environ.get("DATA", "./data")) / config["data"]["name"]
    if args.arch == "gpt2":
        model = AutoModelForCausalLM.from_pretrained(f"{args.arch}-medium")
        Trainer(model, TrainingArguments("out", num_train_epochs=epochs)).train()
        return
    model = Net() if args.arch == "net" else torchvision.models.__dict__[args.arch]()
    to_tensor = transforms.Compose([transforms.RandomCrop(32), transforms.ToTensor()])
    train_set = datasets.CIFAR10(str(root), train=True, transform=to_tensor)
    valid_set = datasets.CIFAR10(str(root), train=False, transform=to_tensor)
    loader = DataLoader(train_set, batch_size=config["data"]["batch_size"], shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(epochs):
        for step, (images, labels) in enumerate(loader):
            loss = criterion(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 100 == 0:
                print(f"epoch {epoch} step {step}/{len(loader)} loss {loss.item():.4f}")
        with torch.no_grad():
            right = sum((model(x).argmax(1) == y).sum() for x, y in DataLoader(valid_set))
        Path("metrics.json").write_text(json.dumps({"epoch": epoch, "right": int(right)}))


if __name__ == "__main__":
    main()
