#!/bin/bash
# SYNTHETIC example: a job writes demo/running.log while its log is followed. All but the last lines
# are there at first; the others are appended after the first answer.
head -n 600 demo/running.log > live.log
schedmate track --follow --every 0.1 live.log | {
    head -n 1
    tail -n 20 demo/running.log >> live.log
    head -n 1
    head -n 300 demo/running.log >> live.log # the next answer has no reader, which ends the command
}
