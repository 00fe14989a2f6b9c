# Runs examples/slurm/setup.sh for real, in a mount namespace whose /etc is a copy, then what it
# installed, as the user that it made. Arguments: the folder of examples, slurm.conf, a folder for
# copies, the command `schedmate`, the installation of Python.
set -euo pipefail
examples=$1 conf=$2 copies=$3 program=$4 python=$5
mkdir -p "$copies/etc" "$copies/python"
cp -a /etc/. "$copies/etc/"
mount --bind "$copies/etc" /etc
for folder in /usr/local/sbin /var/lib /var/spool /opt; do mount -t tmpfs none $folder; done
mkdir -p /etc/slurm /etc/systemd/system /opt/schedmate/bin
cp "$(dirname "$conf")"/*.conf /etc/slurm/
ln -s "$program" /opt/schedmate/bin/schedmate
case $python in /root/*) # nobody else may enter /root
  mount --bind "$python" "$copies/python"
  mount -t tmpfs -o mode=755 none /root
  mkdir -p "$python"
  mount --bind "$copies/python" "$python" ;;
esac
unset SLURM_CONF
export SCHEDMATE_ACCOUNT=lab

bash "$examples/setup.sh"
before=$(md5sum /etc/schedmate/*)
bash "$examples/setup.sh" # again, after an update
[ "$(md5sum /etc/schedmate/*)" = "$before" ]

as() { runuser -u schedmate -- "$@"; }
echo "== sudoers"
as sudo -n /usr/local/sbin/schedmate-drain check
as sudo -n /usr/local/sbin/schedmate-drain drain gpu03 ecc-error-0123456789ab
sinfo -h -n gpu03 -N -o "%T|%E"
as sudo -n /usr/local/sbin/schedmate-drain resume gpu03 ecc-error-0123456789ab
as sudo -n /usr/bin/id 2>/dev/null && echo "sudo allows anything"
as sudo -n SLURM_CONF=/tmp/x /usr/local/sbin/schedmate-drain check 2>/dev/null &&
  echo "sudo lets the environment through"
echo "== unit"
systemd-analyze verify /etc/systemd/system/schedmate-agent.service && echo valid
echo "== doctor"
as env HOME=/var/lib/schedmate /opt/schedmate/bin/schedmate slurm doctor --json \
  --bounds /etc/schedmate/bounds.yaml || true
echo "== agent"
start=$(sed -n 's/^ExecStart=//p' /etc/systemd/system/schedmate-agent.service)
as env HOME=/var/lib/schedmate XDG_CACHE_HOME=/var/lib/schedmate $start --once --json
ls -ld /etc/schedmate/bounds.yaml /var/lib/schedmate /var/spool/schedmate /etc/slurm/epilog-schedmate
