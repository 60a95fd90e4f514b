"""The board: devices by name, the hardware behind them, and the safety rules that hold for everybody."""
