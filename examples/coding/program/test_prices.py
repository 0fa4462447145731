import unittest

from prices import shipping, total


class Prices(unittest.TestCase):
    def test_each_piece_counts(self):
        self.assertEqual(total([("cup", 700, 2), ("plate", 900, 1)]), 2300)

    def test_a_discount_is_taken_off(self):
        self.assertEqual(total([("cup", 1000, 1)], discount_percent=10), 900)

    def test_nothing_is_shipped_free_below_fifty(self):
        self.assertEqual(shipping(4999), 490)

    def test_from_fifty_on_shipping_is_free(self):
        self.assertEqual(shipping(5000), 0)


if __name__ == "__main__":
    unittest.main()
