"""Two CPU devices, so that every test of the engine also tests spreading seeds over devices."""

import procurl

procurl.use_cores(2, device="cpu")
