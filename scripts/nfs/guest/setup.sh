# Preparation of the scenario. Sourced by /init.

set_up() {
    load_modules
}

# A line for the reader at the host's terminal.
show() {
    say "$*"
    result "SHOW $*"
}
