#!/bin/sh
# A site's own commands over a folder: site.sh FOLDER COMMAND [ARGUMENT...]
# nodes/NAME holds why a node is out of service, jobs/ID "RUN STATE", faults/COMMAND how it fails.
cd "$1" || exit 9
shift
command=$1
fault=$(cat "faults/$command" 2>/dev/null)
case $fault in
before) echo "no route to controller"; exit 1 ;;
hang) echo $$ >pid; exec sleep 600 ;;
garbage) printf '\001\377not what\000you wait for\n'; exit 0 ;;
esac
case $command in
nodes)
    for file in nodes/*; do
        read -r reason <"$file"
        node=${file#nodes/}
        if [ -z "$reason" ]; then echo "$node train up"; else echo "$node train drained $reason"; fi
    done ;;
job) cat "jobs/$2" ;;
drain) printf '%s' "$4" >"nodes/$2"; echo "drain $2" >>done.log ;;
resume) : >"nodes/$2"; echo "resume $2" >>done.log ;;
requeue)
    read -r run _ <"jobs/$2"
    echo "$((run + 1)) PENDING" >"jobs/$2"
    echo "requeue $2 without $3" >>done.log ;;
notify) echo "$2: $3" >>mail ;;
test) # exit 1 on the bad node
    echo "tested $2" >>tests.log
    if grep -qx "$2" bad; then echo "GPU 3 is broken"; exit 1; fi
    echo fine ;;
collective) # fails when a bad node takes part
    echo "$2" >>tests.log
    for node in $(echo "$2" | tr , ' '); do
        if grep -qx "$node" bad; then echo "Test NCCL failure common.cu:1 'timed out'"; exit 3; fi
    done
    printf '       8   2   float   sum   -1   9.0   0.1   0.1   0   9.0   0.1   0.1   0\n'
    echo '# Avg bus bandwidth    : 0.1' ;;
*) echo "no command $command"; exit 2 ;;
esac
case $fault in after) echo "connection reset"; exit 1 ;; esac
