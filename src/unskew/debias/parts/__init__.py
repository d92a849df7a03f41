"""What several methods share: imputers and their weights, click towers, sums over D, balances."""
