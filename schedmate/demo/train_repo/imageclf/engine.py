"""One epoch of training, one of validation."""

import torch
from torch.nn import functional as F


def train_epoch(model, loader, optimizer, device, dtype):
    model.train()
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        with torch.autocast(device.type, dtype=dtype):
            loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()


@torch.no_grad()
def validate(model, loader, device):
    model.eval()
    right = total = 0
    for images, labels in loader:
        predicted = model(images.to(device)).argmax(dim=1).cpu()
        right += int((predicted == labels).sum())
        total += len(labels)
    return right / total
