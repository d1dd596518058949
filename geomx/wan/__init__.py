"""The WAN between parties, emulated: `plan` resolves network= into links, `shaper` makes them inside the transport, and
`router` between network namespaces. `selftest` says how well either does it."""
