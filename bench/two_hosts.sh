#!/bin/sh
# Two hosts on one machine: network namespaces with a veth link of a limited rate between them, a process in each.
#
#   bench/two_hosts.sh RATE COMMAND [ARGUMENT ...]      as root; RATE as tc writes it: 200mbit, 1gbit
#
# Runs COMMAND under mpirun (Open MPI's) as two processes, one a namespace, so that all their traffic crosses the link.
# bench/two_hosts.py compares runs by bytes_*, wire_s_* and duration_s of their metrics.jsonl.
set -eu
[ $# -ge 2 ] || { sed -n 2,7p "$0" >&2; exit 2; }
rate=$1
shift
a=octet-a-$$ b=octet-b-$$
work=$(mktemp -d)

clean() {
    ip netns pids "$b" 2>/dev/null | xargs -r kill 2>/dev/null || true
    ip netns del "$a" 2>/dev/null || true
    ip netns del "$b" 2>/dev/null || true
    rm -rf "$work"
}
trap clean EXIT INT TERM

ip netns add "$a"
ip netns add "$b"
ip link add "va$$" netns "$a" type veth peer name "vb$$" netns "$b"
for side in "a $a va$$ 10.77.0.1 " "b $b vb$$ 10.77.0.2"; do
    set -f
    # shellcheck disable=SC2086
    ( set -- $side
      ip -n "$2" addr add "$4/24" dev "$3"
      ip -n "$2" link set "$3" up
      ip -n "$2" link set lo up
      # Linux's usual congestion control, whatever this machine's is: BBR misjudges the bucket's bursts.
      ip -n "$2" route replace 10.77.0.0/24 dev "$3" congctl cubic
      tc -n "$2" qdisc add dev "$3" root tbf rate "$rate" burst 256kb latency 50ms )
done

# mpirun starts its daemon on the other host through this, as it would through ssh.
cat > "$work/agent" <<AGENT
#!/bin/sh
shift
export TMPDIR=$work/b
exec ip netns exec $b unshare --uts sh -c "hostname octet-b; \$*"
AGENT
chmod +x "$work/agent"
mkdir "$work/a" "$work/b"

TMPDIR=$work/a ip netns exec "$a" unshare --uts sh -c 'hostname octet-a; exec "$@"' sh \
    mpirun --allow-run-as-root --bind-to none --oversubscribe -n 2 -H 10.77.0.1:1,10.77.0.2:1 \
    --mca plm_rsh_agent "$work/agent" --mca plm_rsh_no_tree_spawn 1 \
    --mca oob_tcp_if_include 10.77.0.0/24 --mca btl_tcp_if_include 10.77.0.0/24 --mca btl tcp,self \
    -x OMP_NUM_THREADS "$@"
