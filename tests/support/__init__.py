"""What tests share: scripted servers."""
