"""Data loaders by name."""

from torch.utils.data import DataLoader, DistributedSampler
from torchvision import datasets, transforms


def build_datasets(cfg):
    augment = transforms.Compose(
        [
            transforms.RandomResizedCrop(cfg.image_size),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
        ]
    )
    plain = transforms.Compose(
        [
            transforms.Resize(cfg.image_size),
            transforms.CenterCrop(cfg.image_size),
            transforms.ToTensor(),
        ]
    )
    if cfg.name == "cifar10":
        train = datasets.CIFAR10(cfg.root, train=True, download=True, transform=augment)
        valid = datasets.CIFAR10(cfg.root, train=False, download=True, transform=plain)
    elif cfg.name == "imagenet":
        train = datasets.ImageNet(cfg.root, split="train", transform=augment)
        valid = datasets.ImageNet(cfg.root, split="val", transform=plain)
    else:
        raise ValueError(f"no dataset named {cfg.name}")
    return train, valid


def build_loaders(cfg):
    train, valid = build_datasets(cfg)
    sampler = DistributedSampler(train)
    return (
        DataLoader(train, cfg.batch_size, sampler=sampler, num_workers=cfg.workers),
        DataLoader(valid, cfg.batch_size, num_workers=cfg.workers),
        sampler,
    )
