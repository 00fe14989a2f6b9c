"""Train an image classifier: `torchrun --nproc_per_node=4 train.py model=resnet50`."""

import os

import hydra
import timm
import torch
from omegaconf import DictConfig
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from imageclf.data import build_loaders
from imageclf.engine import train_epoch, validate

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def build_optimizer(cfg, parameters):
    if cfg.name == "sgd":
        return torch.optim.SGD(
            parameters, lr=cfg.lr, momentum=cfg.momentum, weight_decay=cfg.weight_decay
        )
    return torch.optim.AdamW(parameters, lr=cfg.lr, weight_decay=cfg.weight_decay)


@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg: DictConfig) -> None:
    torch.manual_seed(cfg.seed)
    distributed.init_process_group("nccl")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))

    model = timm.create_model(
        cfg.model.name, pretrained=cfg.model.pretrained, num_classes=cfg.data.num_classes
    )
    model = DistributedDataParallel(model.to(device), device_ids=[device.index])
    optimizer = build_optimizer(cfg.optim, model.parameters())
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=cfg.trainer.epochs)
    train_loader, valid_loader, sampler = build_loaders(cfg.data)

    for epoch in range(cfg.trainer.epochs):
        sampler.set_epoch(epoch)
        train_epoch(model, train_loader, optimizer, device, DTYPES[cfg.trainer.precision])
        scheduler.step()
        accuracy = validate(model, valid_loader, device)
        if distributed.get_rank() == 0:
            print(f"epoch {epoch} accuracy {accuracy:.4f}", flush=True)


if __name__ == "__main__":
    main()
