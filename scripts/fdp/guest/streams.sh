# Scenario: write streams of a raw device. First by themselves: a known number of bytes in each. Sourced.

placed() { /redoubt/redoubt-device-test write-streams "$drive" >/tmp/placed; }
refused() { /redoubt/redoubt-device-test write-streams --expect refused "$(plain_device)"; }

load() {
    check drive wait_until 20 has_fdp_device 1
    check plain-drive wait_until 20 has_plain_device
    drive=$(fdp_device 1)
    check streams-placed placed
    show_lines streams /tmp/placed
    check streams-refused refused
}
