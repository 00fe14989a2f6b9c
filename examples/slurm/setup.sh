#!/bin/bash
# Least-privilege set-up of schedmate's agent on the machine of the Slurm controller, as root.
# Read it first. It makes a user without a shell, makes that user a Slurm Operator, and installs the
# drain command. Run it again after an update: it changes nothing that is there already.
set -euo pipefail
cd "$(dirname "$0")"

id -u schedmate >/dev/null 2>&1 ||
  useradd --system --home-dir /var/lib/schedmate --shell /usr/sbin/nologin schedmate
install -d -o root -g root -m 755 /etc/schedmate
for name in bounds.yaml recovery.yaml; do
  [ -e "/etc/schedmate/$name" ] || install -o root -g root -m 644 "$name" "/etc/schedmate/$name"
done
cluster=$(scontrol show config | awk '$1 == "ClusterName" { print $3 }')
sed -i "s/^cluster: alpha /cluster: $cluster /" /etc/schedmate/recovery.yaml
install -d -o schedmate -g schedmate -m 700 /var/lib/schedmate
install -d -o slurm -g schedmate -m 2770 /var/spool/schedmate

# An Operator may order, comment, hold and requeue others' jobs; it may not drain nodes.
account=${SCHEDMATE_ACCOUNT:-root}
sacctmgr -n -P show user schedmate format=User | grep -qx schedmate ||
  sacctmgr -i add user schedmate Account="$account"
sacctmgr -i modify user where name=schedmate set AdminLevel=Operator >/dev/null || true

install -o root -g root -m 755 schedmate-drain /usr/local/sbin/schedmate-drain
install -o root -g root -m 755 epilog-schedmate /etc/slurm/epilog-schedmate
if command -v visudo >/dev/null; then
  visudo -cf sudoers-schedmate >/dev/null
  install -o root -g root -m 440 sudoers-schedmate /etc/sudoers.d/schedmate
fi
[ ! -d /etc/systemd/system ] || install -m 644 schedmate-agent.service /etc/systemd/system/
echo "done; see what it may do: sudo -u schedmate schedmate slurm doctor"
